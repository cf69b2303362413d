"""Readiness of the store for reading and writing: problems are reported, and scores continue."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from service.app import create_app
from service.errors import StoreUnavailable
from service.llm import connection
from service.settings import Settings
from service.store import database
from service.store.database import Database
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.postgres import Cluster


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    await database.start()
    try:
        yield database
    finally:
        await database.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 0.4)
    monkeypatch.setattr(connection, "CHECK_KEPT_S", -1.0)


async def refusal(database: Database) -> str:
    """Return why the store is not ready, with a new check."""
    with pytest.raises(StoreUnavailable) as refused:
        await database.ready()
    return str(refused.value)


async def test_held_write_lock_is_reported_until_released(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(f"sqlite:///{path}") as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert "is locked" in await refusal(database)
        await database.ready()


@pytest.mark.parametrize(("start", "size"), [(0, 100), (4096, 200_000)])
async def test_damaged_file_is_reported(tmp_path: Path, start: int, size: int) -> None:
    path = tmp_path / "store.db"
    async with opened(f"sqlite:///{path}") as database:
        await database.forget()
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"\xa5" * size)
        assert "database" in await refusal(database)


async def test_readyz_reports_the_problem_and_scores_continue(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=FakeEmbedder())
    async with in_process(app) as http:
        with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ready, score = await http.get("/readyz"), await http.post("/score", json={"prompt": "?"})
    body = ready.json()
    assert (ready.status_code, body["code"]) == (503, "store_unavailable")
    assert "is locked" in body["detail"] and body["parts"]["llm"] == "ok"
    assert score.status_code == 200


@pytest.mark.postgres
async def test_postgres_table_lock_is_reported(postgres: Cluster) -> None:
    url = postgres.database()
    async with opened(url) as database:
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            assert "is locked" in await refusal(database)
        await database.ready()


@pytest.mark.postgres
async def test_read_only_postgres_is_reported(postgres: Cluster) -> None:
    url = postgres.database()
    async with opened(url):
        pass
    with psycopg.connect(url, autocommit=True) as other:
        name = str(make_url(url).database)
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    database = Database(url)
    database._engine = database._create()
    assert "is read-only" in await refusal(database)
    await database.stop()


@pytest.mark.postgres
async def test_a_postgres_of_another_encoding_is_refused_at_the_start(postgres: Cluster) -> None:
    database = Database(postgres.database("ENCODING 'SQL_ASCII' TEMPLATE template0"))
    with pytest.raises(StoreUnavailable, match=r"encoding SQL_ASCII.*ENCODING 'UTF8'"):
        await database.start()
    await database.stop()
