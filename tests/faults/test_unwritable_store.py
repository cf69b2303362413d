"""A job goes on without a restart when a store that refused writes accepts them again."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from service.errors import StoreUnavailable
from service.jobs.model import Job, JobOptions
from tests.support.job_worker import Replica, dev_rows, go_on, hold
from tests.support.processes import (
    final,
    idle_replica,
    requests,
    undisturbed,
    until_asked,
    worker,
)

ROWS, SLOTS = 40, 2
TROUBLE_S = 3.0  # the worker checks its jobs every 0.2 s
# DBOS's tables for queues, steps and outcomes.
TABLES = ("workflow_status", "operation_outputs")


@contextmanager
def unwritable(path: Path, table: str) -> Iterator[None]:
    """Let each write to a table fail, as on a full disk."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        for event in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TRIGGER refuse_{event} BEFORE {event} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            )
        yield
        for event in ("INSERT", "UPDATE"):
            connection.execute(f"DROP TRIGGER refuse_{event}")


async def check_result(outside: Replica, job: Job, log: Path, folder: Path) -> None:
    """Check for the numbers of an undisturbed job. Only rows in progress may be sampled twice."""
    ended = await final(outside, job)
    assert ended.parameters == (await undisturbed(folder, ROWS)).parameters
    drawn = [request.prompt for request in requests(log)]
    assert set(drawn) == {f"question {i}" for i in range(ROWS)}
    assert len(drawn) <= ROWS + SLOTS
    later, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions(activate="always"))
    await final(outside, later)


@pytest.mark.parametrize("table", TABLES)
async def test_a_job_goes_on_after_its_steps_could_not_be_stored(tmp_path: Path, table: str) -> None:
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside, worker(url, log):
        hold(log, after=ROWS // 2)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_asked(log, ROWS // 2 + SLOTS)
        with unwritable(tmp_path / "store.db.jobs", table):
            go_on(log)
            await asyncio.sleep(TROUBLE_S)
        await check_result(outside, job, log, tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a disk of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk takes root")
async def test_a_job_goes_on_after_a_full_disk(tmp_path: Path, disk: Path) -> None:
    url, log = f"sqlite:///{disk / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside, worker(url, log):
        hold(log, after=ROWS // 2)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_asked(log, ROWS // 2 + SLOTS)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        go_on(log)
        await asyncio.sleep(TROUBLE_S)
        with pytest.raises(StoreUnavailable):
            await outside.database.soon(outside.database._ready())
        filler.unlink()
        await check_result(outside, job, log, tmp_path)
