"""A SQLite store whose file or disk goes away under it, and comes back."""

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from service.store.location import DatabaseFile

from service.app import create_app
from service.calibration.calibration import CalibrateOptions
from service.calibration.store import ActiveCalibrations, SqlCalibrations
from service.errors import StoreUnavailable
from service.jobs.store import SqlJobs
from service.settings import Settings
from service.store.database import Database
from tests.support.calibrations import calibration, rows
from tests.support.fakes import FakeEmbedder, FakeLLM

OPTIONS = CalibrateOptions()
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'store.db'}", probe_s=0)
    await made.start()
    yield made
    await made.stop()


def delete(folder: Path, pattern: str = "*.db*") -> None:
    for path in folder.glob(pattern):
        path.unlink()


def back_up(folder: Path, name: str = "store.db") -> Path:
    """Return a copy whose time of change is past, as that of a file moved into place."""
    kept = folder / "kept"
    with contextlib.closing(sqlite3.connect(folder / name)) as connection:
        connection.execute(f"VACUUM INTO '{kept}'")
    os.utime(kept, (0, 0))
    return kept


async def until(well: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await well()
                return
            await asyncio.sleep(0.02)


async def test_a_deleted_file_is_noticed_and_one_put_back_is_used(database: Database, tmp_path: Path) -> None:
    active = ActiveCalibrations(database)
    store, kept = SqlJobs(database, active), SqlCalibrations(database, active)
    made = calibration()
    await kept.add(made, {})
    await kept.activate(made.id)
    copy = back_up(tmp_path)
    await kept.activate((await kept.list_all())[0].calibration.id)
    delete(tmp_path, "store.db*")
    for call in (database.check, lambda: store.submit(rows(), OPTIONS), store.latest):
        with pytest.raises(StoreUnavailable, match="gone"):
            await call()
    assert list(tmp_path.glob("store.db*")) == [], "no empty database takes its place"
    assert kept.active(made.fingerprint.key()) == made
    shutil.copy2(copy, tmp_path / "store.db")
    await until(database.check)
    assert [record.calibration for record in await kept.list_active()] == [made]
    job, created = await store.submit(rows(), OPTIONS)
    assert created
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT id FROM jobs").fetchall() == [(job.id,)]


async def test_a_transaction_that_outlives_the_file_is_refused(database: Database, tmp_path: Path) -> None:
    """An upload takes a while; what it wrote would be lost without a word."""
    with pytest.raises(StoreUnavailable, match="gone"):
        async with database.write() as connection:
            await connection.execute(sa.text("UPDATE jobs SET note = ''"))
            delete(tmp_path, "store.db*")


@pytest.mark.parametrize("content", [b"", b"SQLite", b"no database at all, but long enough"])
async def test_what_is_no_database_yet_is_left_alone(
    database: Database, tmp_path: Path, content: bytes
) -> None:
    delete(tmp_path, "store.db*")
    path = tmp_path / "store.db"
    path.write_bytes(content)
    os.utime(path, (0, 0))
    with pytest.raises(StoreUnavailable, match="gone"):
        await database.check()
    assert path.read_bytes() == content


async def test_a_file_that_is_still_being_copied_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"SQLite format 3\0 and more")
    assert not DatabaseFile(path).usable(settled_s=60)
    assert DatabaseFile(path).usable(settled_s=0)


async def test_a_full_disk_fails_the_check(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await database.check()

    def full(self: DatabaseFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseFile, "probe", full)
        with pytest.raises(StoreUnavailable, match="disk of the database is full"):
            await database.check()
    await database.check()


async def test_a_database_that_cannot_grow_refuses_a_job(database: Database) -> None:
    store = SqlJobs(database, ActiveCalibrations(database))
    async with database.read() as connection:
        used = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {used}")
    with pytest.raises(StoreUnavailable, match="disk of the database is full"):
        await store.submit(rows(2000), OPTIONS)
    async with database.read() as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert await store.latest() == []


async def test_the_service_refuses_jobs_that_it_would_lose(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=FakeEmbedder(16))
    body = {"examples": [{"prompt": f"q{i}", "reference": "a", "samples": ["a", "b"]} for i in range(30)]}
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as http,
    ):
        copy = back_up(tmp_path, "eigencal.db")
        delete(tmp_path)
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["parts"]["store"]) == (503, "unavailable")
        refused = await http.post("/calibrate", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert str(tmp_path) not in ready.text + refused.text
        assert (await http.post("/score", json={"samples": ["a", "b"]})).status_code == 200
        shutil.copy2(copy, tmp_path / "eigencal.db")

        async def ready_again() -> None:
            if (await http.get("/readyz")).status_code != 200:
                raise StoreUnavailable("not yet")

        await until(ready_again)
        job = (await http.post("/calibrate", json=body)).raise_for_status().json()
        await http.get(f"/jobs/{job['id']}/events")  # to its end: the engine was started anew, too
        assert (await http.get(f"/jobs/{job['id']}")).json()["state"] == "succeeded"
