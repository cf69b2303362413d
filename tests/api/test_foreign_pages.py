"""Requests that a foreign page can send from a local browser are never scored; over real sockets."""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx2 as httpx
import pytest
from starlette.requests import Request

from service.http.keys import on_loopback
from tests.support.fakes import FakeLLM
from tests.support.live import fake_app, on_socket, served

JSON = {"Content-Type": "application/json"}
BODY = b'{"prompt":"p"}'
FOREIGN = [
    {"Origin": "https://attacker.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1.attacker.example"},
    {"Host": "attacker.example:8000"},  # a name that resolves to loopback, from its own page
    {"Host": "attacker.example", "Origin": "http://attacker.example"},
    {"Host": "attacker.example", "Origin": "http://attacker.example", "X-Forwarded-For": "192.0.2.1"},
    {"Host": ""},
    {"Host": "attacker.example.:8000"},
    {"Host": "localhost..:8000"},
]
OURS = [
    {},
    {"Host": "localhost:8000"},
    {"Host": "localhost.:8000"},  # the same host: a trailing dot ends a full name
    {"Host": "localhost.", "Origin": "http://localhost.:3000"},
    {"Host": "[::1]", "Origin": "http://[::1]"},
    {"Origin": "http://127.0.0.1:3000"},
]


class Scoring:
    """A service, and the requests to its LLM."""

    def __init__(self, **settings: Any) -> None:
        self.llm = FakeLLM()
        self.app = fake_app(self.llm, **settings)

    async def posted(self, headers: Iterable[dict[str, str]]) -> list[httpx.Response]:
        """Post a prompt with each of these headers; return the responses."""
        async with on_socket(self.app) as http:
            return [await http.post("/score", content=BODY, headers=JSON | header) for header in headers]


async def test_a_body_that_is_not_said_to_be_json_is_refused() -> None:
    scoring = Scoring()
    kinds = ["", "text/plain", "application/x-www-form-urlencoded"]
    for answer in await scoring.posted({"Content-Type": kind} for kind in kinds):
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert not scoring.llm.requests
    kinds = ["application/json; charset=utf-8", "application/vnd.x+json"]
    for answer in await scoring.posted({"Content-Type": kind} for kind in kinds):
        assert answer.status_code == 200


async def test_a_foreign_page_is_refused_while_no_key_is_set() -> None:
    scoring = Scoring()
    for headers, answer in zip(FOREIGN, await scoring.posted(FOREIGN), strict=True):
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_required"), headers
        assert "set a score key" in answer.json()["detail"]
    assert not scoring.llm.requests
    assert {answer.status_code for answer in await scoring.posted(OURS)} == {200}
    with_key = [headers | {"Authorization": "Bearer k"} for headers in FOREIGN]
    assert {answer.status_code for answer in await Scoring(score_key="k").posted(with_key)} == {200}


@pytest.mark.parametrize("path", ["POST /score", "GET /jobs"])
async def test_a_request_without_a_host_is_refused(path: str) -> None:
    """A proxy on this machine may drop the host, as HTTP/1.0 allows."""
    async with served(fake_app()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert int(answer.split()[1]) == 403


def test_caller_without_an_address_is_not_local() -> None:
    """For example over a Unix socket, possibly of a proxy."""
    named = [(b"host", b"localhost")]
    scope = {"type": "http", "headers": named, "client": ("127.0.0.1", 40_000)}
    assert on_loopback(Request(scope))
    assert not on_loopback(Request({**scope, "client": None}))


@pytest.mark.parametrize(
    "path", ["/", "/console/", "/healthz", "/docs", "/openapi.json", "/none", "/jobs", "/docs/favicon.png"]
)
async def test_every_response_has_browser_security_headers(path: str) -> None:
    async with on_socket(fake_app()) as http:
        headers = (await http.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ") and "frame-ancestors 'none'" in policy
    assert ("script-src" in policy) == (path in ("/docs", "/console/"))
    assert "script-src 'self' 'unsafe" not in policy
