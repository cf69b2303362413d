"""Real processes, really killed: a job ends with the same result, and no kept answer is drawn again."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.adapters.job_engine import TaskEngine
from service.domain.calibration import Calibration
from service.domain.jobs import CalibrateOptions, Job
from tests.conftest import ROOT
from tests.support.job_worker import NUM_SAMPLES, LoggingLLM, Replica, dev_rows, replica

ROWS = 60
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def worker(url: str, log: Path, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a replica in a process of its own; it is killed with -9 on the way out."""
    command = [sys.executable, "-m", "tests.support.job_worker", url, "only", str(log), *args]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"ready"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


def requests(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def complete_prompts(database: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        kept = connection.execute("SELECT content FROM dev_rows WHERE complete").fetchall()
    return {json.loads(content)["prompt"] for (content,) in kept}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def idle_replica(url: str, llm: LoggingLLM) -> AsyncIterator[Replica]:
    """A replica in this process that takes jobs in but runs none."""

    class Idle(TaskEngine):
        async def enqueue(self, job_id: str) -> None:
            pass

    async with replica(url, "idle", llm, engine=Idle()) as made:
        yield made


async def final(made: Replica, job: Job) -> Calibration:
    async with asyncio.timeout(60):
        async for state in made.jobs.events(job.id):
            last = state
    assert last.state == "succeeded", last
    assert last.calibration_id is not None
    found = await made.calibrations.get(last.calibration_id)
    assert found is not None
    return found


async def undisturbed(folder: Path) -> Calibration:
    async with replica(f"sqlite:///{folder / 'calm.db'}", "calm", LoggingLLM(), engine=TaskEngine()) as made:
        job, _ = await made.jobs.submit(dev_rows(ROWS), CalibrateOptions())
        return await final(made, job)


async def test_killed_three_times(tmp_path: Path) -> None:
    database, log = tmp_path / "store.db", tmp_path / "log"
    url = f"sqlite:///{database}"
    async with idle_replica(url, LoggingLLM()) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), CalibrateOptions())
        for kill in range(1, 4):
            async with worker(url, log, "--slow", "0.1") as process:
                await until(lambda kill=kill: len(complete_prompts(database)) >= 12 * kill)
                process.send_signal(signal.SIGKILL)
                await process.wait()
            kept, before = complete_prompts(database), len(requests(log))
            running = await outside.jobs.get(job.id)
            assert running is not None
            assert running.state == "running"
            async with worker(url, log, "--slow", "0.1"):
                await until(lambda before=before: len(requests(log)) >= before + 3)
            again = {line.split(" ", 2)[2] for line in requests(log)[before:]}
            assert not again & kept
        async with worker(url, log, "--slow", "0"):
            ended = await final(outside, job)
    drawn = [line.split(" ", 2) for line in requests(log)]
    assert {prompt for _, _, prompt in drawn} == {f"question {i}" for i in range(ROWS)}
    assert {int(number) for _, number, _ in drawn} == {NUM_SAMPLES}
    assert len(drawn) <= ROWS + 6 * 2  # six kills, two slots: what was in flight, no more
    calm = await undisturbed(tmp_path)
    assert ended.parameters == calm.parameters
    assert (ended.method, ended.fingerprint) == (calm.method, calm.fingerprint)


async def test_killed_while_fitting(tmp_path: Path) -> None:
    """Nothing is drawn again when all answers are there, and one calibration comes of it."""
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url, LoggingLLM()) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), CalibrateOptions())
        async with worker(url, log, "--slow", "0") as process:
            async for state in outside.jobs.events(job.id):
                if state.stage in ("embedding", "fitting", "reporting"):
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
                    break
        before = requests(log)
        async with worker(url, log, "--slow", "0"):
            await final(outside, job)
        assert requests(log) == before
        assert len(await outside.calibrations.list_all()) == 1
