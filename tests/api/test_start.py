"""A failed start gives the reason in one line; internal errors keep their traceback."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.errors import StoreUnavailable
from service.http.keys import new_key
from service.llm.weights import WeightsError
from service.settings import Settings
from service.store.database import Database, shown, store_url
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.sqlite_store import SqliteStore

ROOT = Path(__file__).parents[2]


async def start_failure(tmp_path: Path, error: Exception) -> str:
    """Return the error that the server gets if a part fails to start."""

    class Broken(SqliteStore):
        async def start(self) -> None:
            raise error

    return await refused(Settings(data_dir=tmp_path), Broken(), type(error))


async def refused(settings: Settings, store: SqliteStore, error: type[Exception]) -> str:
    """Return the error that the server gets if the application does not start."""
    app = create_app(settings, llm=FakeLLM(), embedder=FakeEmbedder(), store=store)
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with pytest.raises(error):
        await app({"type": "lifespan", "state": {}}, receive, send)
    assert [message["type"] for message in messages] == ["lifespan.startup.failed"]
    return str(messages[0]["message"])


@pytest.mark.parametrize(
    "error", [WeightsError("no\n weights"), StoreUnavailable("no weights"), OSError("no weights")]
)
def test_operator_error_is_one_line(tmp_path: Path, error: Exception) -> None:
    assert asyncio.run(start_failure(tmp_path, error)) == "Cannot start: no weights"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "service.example.org"])
def test_open_beyond_loopback_it_does_not_start(tmp_path: Path, host: str) -> None:
    settings = Settings(data_dir=tmp_path, host=host)
    result = asyncio.run(refused(settings, SqliteStore(), PermissionError))
    assert result.startswith(f"Cannot start: EIGENCAL_HOST={host} ")
    assert "Set EIGENCAL_SCORE_KEY" in result and "EIGENCAL_ALLOW_OPEN=true" in result


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0", "score_key": "a-score-key"},
        {"host": "0.0.0.0", "allow_open": True},
        {"host": "localhost"},
        {"host": "::1"},
    ],
)
def test_service_starts_with_a_key_or_a_gate_or_on_loopback(tmp_path: Path, settings: dict[str, Any]) -> None:
    asyncio.run(started(Settings(data_dir=tmp_path, **settings), SqliteStore()))


async def started(settings: Settings, store: SqliteStore) -> None:
    app = create_app(settings, llm=FakeLLM(), embedder=FakeEmbedder(), store=store)
    async with in_process(app):
        pass


def test_created_score_key_allows_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        store = SqliteStore()
        made, _ = new_key("one", "score", None, datetime.now(UTC))
        await store.keys.add(made)
        await started(Settings(data_dir=tmp_path, host="0.0.0.0"), store)

    asyncio.run(run())


def test_migrate_creates_the_tables_and_exits(tmp_path: Path) -> None:
    environment = os.environ | {"EIGENCAL_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "service", "migrate"]
    for _ in range(2):  # the second has nothing to do
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
    with closing(sqlite3.connect(tmp_path / "eigencal.db")) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert {"jobs", "calibrations"} <= names


def test_failed_migration_gives_the_reason_in_one_line(tmp_path: Path) -> None:
    environment = os.environ | {"EIGENCAL_DATABASE_URL": "mysql://nobody@127.0.0.1/none"}
    command = [sys.executable, "-m", "service", "migrate"]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "Not migrated: the database URL must be of sqlite or postgresql\n"


async def test_log_shows_the_setup_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="service")
    settings = Settings(
        data_dir=tmp_path,
        llm_url="http://me:pass@llm.example:8001/v1?key=abc",  # pragma: allowlist secret
    )
    await started(settings, SqliteStore())
    reports = [record.getMessage() for record in caplog.records if record.name == "service.app"]
    assert reports[0].startswith("Eigencal ")
    assert reports[1:] == [
        f"store: SQLite file {tmp_path / 'eigencal.db'}",
        "LLM: http://llm.example:8001/v1 (API for prompts: chat), model fake-llm",
        "answers: 20, of at most 256 tokens to a prompt, 256 to a conversation",
        "embedder: fake-embedder, revision 1, 64 dimensions, float32",
    ]


def test_store_url_is_logged_without_credentials() -> None:
    url = "postgresql://me:pass@db.example:6432/eigencal?sslpassword=x"  # pragma: allowlist secret
    assert shown(store_url(url)) == "PostgreSQL database eigencal at db.example:6432"


@pytest.mark.parametrize("name", ["feature%2Fnew", "what?", "a#b", "ü b@c"])
async def test_the_data_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    settings = Settings(data_dir=tmp_path / name, llm_url="http://127.0.0.1:9/v1")
    (tmp_path / name).mkdir()
    database = Database(settings.resolved_database_url())
    await database.start()
    await database.stop()
    assert [file.parent.name for file in tmp_path.rglob("eigencal.db")] == [name]
