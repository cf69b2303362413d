"""Two replicas on one store: new keys work at both at once, and revoked keys are soon refused at both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import build_replica, create_app, serving_of
from service.jobs.model import Setup
from service.scoring.scorer import LiveLoad
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import on_socket
from tests.support.postgres import Cluster
from tests.support.replica_apps import INTERVALS
from tests.support.task_engine import TaskEngine

pytestmark = pytest.mark.postgres
PROMPT = {"prompt": "What is the capital of France?"}
PATIENCE_S = 60.0  # a guard only: the machine may be busy


@pytest.fixture
def url(postgres: Cluster) -> str:
    """Return the address of a new database."""
    return postgres.database()


@asynccontextmanager
async def replica(url: str, name: str, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Serve one replica on its own socket; yield a client."""
    settings_ = Settings(data_dir=folder, database_url=url)
    llm, embedder = FakeLLM(), FakeEmbedder()
    store = build_replica(
        url,
        llm=llm,
        embedder=embedder,
        serving=serving_of(settings_),
        setup=Setup(),
        slots=1,
        live=LiveLoad(),
        engine=TaskEngine(),
        intervals=INTERVALS,
    )
    app = create_app(settings_, llm=llm, embedder=embedder, store=store)
    async with on_socket(app) as http:
        yield http


async def made(http: httpx.AsyncClient, scope: str = "score", **headers: str) -> dict[str, Any]:
    answer = await http.post("/keys", json={"name": "a key", "scope": scope}, headers=headers)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def scored(http: httpx.AsyncClient, key: str = "") -> tuple[int, str]:
    """Return status and error code of a score."""
    answer = await http.post("/score", json=PROMPT, headers={"X-API-Key": key} if key else {})
    return answer.status_code, answer.json().get("code", "")


async def until(http: httpx.AsyncClient, key: str, expected: tuple[int, str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await scored(http, key) != expected:
            await asyncio.sleep(0.02)


async def test_keys_are_shared_between_replicas(url: str, tmp_path: Path) -> None:
    async with replica(url, "a", tmp_path) as here, replica(url, "b", tmp_path) as there:
        assert await scored(there) == (200, "")
        first = await made(here)
        await until(there, "", (401, "missing_key"))  # closed there, too, soon
        later = [await made(here) for _ in range(3)]
        for key in (first, *later):
            assert await scored(there, key["key"]) == (200, "")  # at once
        assert (await here.delete(f"/keys/{first['id']}")).status_code == 204
        assert await scored(here, first["key"]) == (401, "bad_key")  # at once
        await until(there, first["key"], (401, "bad_key"))
        assert await scored(there, later[0]["key"]) == (200, "")
        for unknown in ("%00", "key_" + "0" * 26):
            assert (await there.delete(f"/keys/{unknown}")).status_code == 404
        listed = (await there.get("/keys")).json()
        assert [(key["id"], key["state"]) for key in listed] == [
            (key["id"], "revoked" if key is first else "valid") for key in (*later[::-1], first)
        ]


async def test_key_is_revoked_while_many_score(url: str, tmp_path: Path) -> None:
    """Every answer is a score or 401, and after a replica's first 401 there are no more scores."""
    async with replica(url, "a", tmp_path) as here, replica(url, "b", tmp_path) as there:
        key = await made(here)

        async def series(http: httpx.AsyncClient) -> list[tuple[int, str]]:
            answers = [await scored(http, key["key"])]
            async with asyncio.timeout(PATIENCE_S):
                while answers[-1][0] == 200:
                    answers.append(await scored(http, key["key"]))
            return [*answers, *[await scored(http, key["key"]) for _ in range(3)]]

        running = [asyncio.create_task(series(http)) for http in (here, there) for _ in range(4)]
        assert await scored(here, key["key"]) == (200, "")
        await here.delete(f"/keys/{key['id']}")
        for answers in await asyncio.gather(*running):
            good = answers.count((200, ""))
            assert answers == [(200, "")] * good + [(401, "bad_key")] * 4


async def test_frozen_database_does_not_delay_known_keys(postgres: Cluster, tmp_path: Path) -> None:
    async with replica(postgres.database(), "a", tmp_path) as http:
        key = await made(http)
        with postgres.frozen():
            assert await scored(http, key["key"]) == (200, "")
            assert await scored(http, "eigencal_" + "0" * 43) == (503, "store_unavailable")
            assert await scored(http, key["key"]) == (200, "")
        async with asyncio.timeout(PATIENCE_S):
            while await scored(http, "eigencal_" + "0" * 43) != (401, "bad_key"):
                await asyncio.sleep(0.05)
