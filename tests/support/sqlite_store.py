"""The store of an application in a copy of a migrated SQLite file, without a job engine."""

import atexit
import functools
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from service.calibration.calibration import Calibration
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.jobs.calibrator import Drawer
from service.jobs.model import Job, JobOptions
from service.jobs.runner import DurableJobs, JobSteps
from service.jobs.store import SqlJobs
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from service.store.database import Database, jobs
from service.store.migrations import migrate
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.kept import MemoryKept
from tests.support.keys import MemoryKeys


@functools.cache
def _template() -> Path:
    """Return a migrated file, created once per process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "template.db"
    migrate(sa.make_url(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


class CopiedDatabase(Database):
    """A database with existing tables, opened on first use."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(f"sqlite:///{folder / 'store.db'}", **options)
        self._path = folder / "store.db"

    async def start(self) -> None:
        """Open the file."""
        self._open()

    def _create(self) -> AsyncEngine:
        # No pool: the thread of an unclosed connection would outlive the event loop of its test, and fail
        # another test.
        engine = super()._create()
        pool = engine.sync_engine.pool
        engine.sync_engine.pool = NullPool(pool._creator, dialect=pool._dialect, _dispatch=pool.dispatch)
        return engine

    def _open(self) -> AsyncEngine:
        if not self._path.exists():
            shutil.copy(_template(), self._path)
        if self._engine is None:
            self._engine = self._create()
        return self._engine


class IdleEngine:
    """An engine that runs no jobs."""

    async def start(self, steps: JobSteps) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def reconcile(self, open_jobs: Mapping[str, str]) -> None:
        """Do nothing."""

    async def cancel(self, job_id: str) -> None:
        """Do nothing."""


class SqliteStore:
    """All stores of the application; nothing outlives the object."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.database = CopiedDatabase(Path(folder))
        self.stored = self.calibrations = SqlCalibrations(self.database, poll_s=60)
        self.runs = SqlJobs(self.database, self.stored)
        drawer = Drawer(FakeLLM(), FakeEmbedder(), self.runs, Serving(10, Sampling(), Sampling()))
        steps = JobSteps(self.runs, drawer, {}, slots=1)
        self.jobs = DurableJobs(self.runs, steps, IdleEngine())
        self.kept = MemoryKept()
        self.keys = MemoryKeys()

    async def start(self) -> None:
        """Open the file."""
        await self.database.start()
        await self.stored.start()

    async def stop(self) -> None:
        """Close the file; idempotent."""
        await self.stored.stop()
        await self.database.stop()

    async def change(self, job_id: str, **values: Any) -> Job:
        """Change a job like its run."""
        async with self.database.write() as connection:
            await connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(values))
        job = await self.runs.get(job_id)
        assert job is not None
        return job

    async def rows_of(self, job_id: str) -> list[DevRow]:
        """Return the rows of a job; none after it was cancelled."""
        return [replace(row, draws=(), complete=False) for row in await self.runs.rows(job_id)]

    async def fitted(
        self, calibration: Calibration, report: dict[str, Any], rows: Iterable[DevRow], num_rows: int = 0
    ) -> None:
        """Store a calibration like a job on these rows."""
        kept = list(rows)
        job, _ = await self.jobs.submit(kept, JobOptions(drawn_by="service"))
        await self.runs.begin(job.id)
        await self.runs.succeed(job.id, calibration, report, num_rows or len(kept), activate=False)
