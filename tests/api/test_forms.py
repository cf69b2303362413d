"""Multipart forms byte by byte, including truncated and malformed ones, over a real socket."""

from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest

from tests.support.live import served
from tests.support.operator_world import World, examples, jsonl, problem, upload

HEADERS = {"Content-Type": "multipart/form-data; boundary=B"}
CLOSING = b"\r\n--B--"
FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
ACTIVATE = b'\r\n--B\r\nContent-Disposition: form-data; name="activate"\r\n\r\nnever'


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        served(world.app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as made,
    ):
        yield made


@pytest.mark.parametrize("epilogue", [b"", b"\r\n", b"\r\nwhatever"])
async def test_complete_body_is_accepted(world: World, client: httpx.AsyncClient, epilogue: bytes) -> None:
    body = FILE + jsonl(examples()) + ACTIVATE + CLOSING + epilogue
    taken = await client.post("/calibrate", content=body, headers=HEADERS)
    assert taken.status_code == 202, taken.text
    assert [job.id for job in await world.jobs.store.latest()] == [taken.json()["id"]]


async def test_an_option_sent_as_a_file_is_named(world: World, client: httpx.AsyncClient) -> None:
    files = {**upload(jsonl(examples())), "activate": ("activate.txt", b"always")}
    refused = problem(await client.post("/calibrate", files=files), 422, "invalid_request")
    assert refused["errors"][0]["loc"] == ["body", "activate"]
    assert "must not be a file" in refused["detail"]


@pytest.mark.parametrize(
    ("sent", "named", "said"),
    [
        (["data"], "file", "is missing: send the data as `file`"),
        (["file", "data"], "data", "must not be a file; send the data as `file`"),
    ],
)
async def test_wrong_file_of_many_is_named(
    client: httpx.AsyncClient, sent: list[str], named: str, said: str
) -> None:
    files = [(name, ("a.jsonl", jsonl(examples()))) for name in sent]
    refused = problem(await client.post("/calibrate", files=files), 422, "invalid_request")
    assert refused["detail"].startswith(f"{named}: {said}")
    assert refused["errors"][0]["loc"] == ["body", named]
