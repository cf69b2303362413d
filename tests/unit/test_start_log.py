"""What the log says when the service starts."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service import start_log
from service.app import create_app
from service.embedding.port import EmbedderIdentity
from service.errors import EmbedderUnavailable
from service.settings import Settings
from service.start_log import StartLog
from service.store.database import shown, store_url
from tests.support.calibrations import calibration
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="service")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == start_log.__name__]


async def until(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    async with asyncio.timeout(60):
        while text not in caplog.text:
            await asyncio.sleep(0.01)
    return lines(caplog)


@asynccontextmanager
async def started(folder: Path, llm: FakeLLM, embedder: FakeEmbedder, **settings: Any) -> AsyncIterator[None]:
    made = Settings(data_dir=folder, replica_id="here", **settings)
    app = create_app(made, llm=llm, embedder=embedder, store=SqliteStore())
    async with app.router.lifespan_context(app):
        yield


async def test_the_set_up_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = {
        "llm_backend": "vllm",
        "llm_url": "http://me:pass@llm.example:8001/v1?key=abc",  # pragma: allowlist secret
        "llm_api_key": "sk",
    }
    async with started(tmp_path, FakeLLM(), FakeEmbedder(64), **secret):
        told = await until(caplog, "calibrations in force")
    assert told[0].startswith("Eigencal ")
    assert told[1:] == [
        f"store: SQLite file {tmp_path / 'eigencal.db'}",
        "LLM: http://llm.example:8001/v1 (API for prompts: chat)",
        "answers: 20, of at most 256 tokens to a prompt, 256 to a conversation",
        "embedder: fake-embedder, revision 1, 64 dimensions, float32",
        "the LLM answers: model fake-llm",
        "calibrations in force: none for this set-up",
    ]


async def test_an_llm_that_comes_later_is_told_once_each_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = FakeLLM()
    llm.available = False
    made = log_of(llm)
    await made.start()
    await until(caplog, "does not answer")
    await asyncio.sleep(0.1)  # it is asked again, and says the same
    llm.available = True
    told = await until(caplog, "calibrations in force")
    await made.stop()
    assert [line for line in told if "answer" in line] == [
        "the LLM does not answer (The LLM is not available.): it is asked again until it does",
        "the LLM answers: model fake-llm",
    ]


def log_of(llm: FakeLLM, **parts: Any) -> StartLog:
    given = {
        "llm": llm,
        "model": lambda: llm.model,
        "embedder": FakeEmbedder(8),
        "embedder_place": "model at http://127.0.0.1:9",
        "own_keys": lambda: ("a", "b"),
        "active": lambda _: None,
        "first_wait_s": 0.01,
    }
    return StartLog(**(given | parts))


async def test_an_llm_that_hangs_does_not_delay_the_start(tmp_path: Path) -> None:
    class Hanging(FakeLLM):
        async def check(self) -> None:
            await asyncio.Event().wait()

    async with asyncio.timeout(60), started(tmp_path, Hanging(), FakeEmbedder(8)):
        pass


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ((), "unknown until the embedder has answered"),
        (("own", "own"), "prompts {id}, conversations {id}"),
        (("own", "other"), "prompts {id}, conversations none"),
    ],
)
async def test_the_calibrations_in_force_are_told(
    caplog: pytest.LogCaptureFixture, keys: tuple[str, ...], told: str
) -> None:
    active = calibration()
    made = log_of(FakeLLM(), own_keys=lambda: keys, active={"own": active}.get)
    await made.start()
    await until(caplog, f"calibrations in force: {told.format(id=active.id)}")
    await made.stop()
    await made.stop()


async def test_the_embedder_is_told_with_its_device_or_as_silent(caplog: pytest.LogCaptureFixture) -> None:
    class Somewhere(FakeEmbedder):
        device = "cuda:0"

    class Silent(FakeEmbedder):
        @property
        def identity(self) -> EmbedderIdentity:
            raise EmbedderUnavailable("not yet")

    for embedder in (Somewhere(8), Silent(8)):
        made = log_of(FakeLLM(), embedder=embedder)
        await made.start()
        await made.stop()
    assert lines(caplog) == [
        "embedder: fake-embedder, revision 1, 8 dimensions, float32, on cuda:0",
        "embedder: model at http://127.0.0.1:9 does not answer yet",
    ]


async def test_a_check_with_a_bug_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeLLM):
        async def check(self) -> None:
            raise RuntimeError("a bug")

    made = log_of(Broken())
    await made.start()
    await until(caplog, "the LLM does not answer (failed)")
    await made.stop()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:////srv/store.db", "SQLite file /srv/store.db"),
        (
            "postgresql://me:pass@db.example:6432/eigencal?sslpassword=x",  # pragma: allowlist secret
            "PostgreSQL database eigencal at db.example:6432",
        ),
    ],
)
def test_where_the_store_is_without_credentials(url: str, told: str) -> None:
    assert shown(store_url(url)) == told
