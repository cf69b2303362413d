"""Replicas as separate processes, and helpers to observe them."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from service.calibration.calibration import Calibration
from service.jobs.model import Job, JobOptions
from tests.support.following import states
from tests.support.job_worker import LoggingLLM, Replica, dev_rows, replica
from tests.support.task_engine import TaskEngine

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def worker(url: str, log: Path, *, slow_s: float = 0.0) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a replica in a separate process; kill it with -9 at the end."""
    module = "tests.support.job_worker"
    command = [sys.executable, "-m", module, url, str(log), "--slow", str(slow_s)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"ready"
        yield process
    finally:
        await kill(process)


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kill with -9 and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    await process.wait()


@dataclass(frozen=True)
class Request:
    """A request to a fake LLM."""

    pid: int
    num_samples: int
    prompt: str


def requests(log: Path) -> list[Request]:
    """Return the requests so far of all processes that write to this log."""
    lines = [line.split(" ", 2) for line in log.read_text().splitlines()] if log.exists() else []
    return [Request(int(pid), int(number), prompt) for pid, number, prompt in lines]


async def kept_prompts(made: Replica, job: Job) -> set[str | None]:
    """Return the prompts of which all answers are stored."""
    return {row.prompt for row in await made.store.rows(job.id) if row.complete}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition in another process."""
    async with asyncio.timeout(300):  # a guard only: the machine may be busy
        while not await condition():
            await asyncio.sleep(0.01)


async def until_kept(made: Replica, job: Job, number: int) -> None:
    """Wait until `number` rows have their answers."""

    async def enough() -> bool:
        return len(await kept_prompts(made, job)) >= number

    await until(enough)


async def until_asked(log: Path, number: int) -> None:
    """Wait until the fake LLMs have been asked `number` times."""

    async def enough() -> bool:
        return len(requests(log)) >= number

    await until(enough)


@asynccontextmanager
async def idle_replica(url: str) -> AsyncIterator[Replica]:
    """Yield a replica in this process that accepts jobs but runs none."""

    class Idle(TaskEngine):
        async def reconcile(self, open_jobs: Mapping[str, str]) -> None:
            pass

    async with replica(url, LoggingLLM(), engine=Idle()) as made:
        yield made


async def ended(made: Replica, job: Job) -> Job:
    """Wait for the job to succeed and return its last state."""
    async with asyncio.timeout(300):
        async for state in states(made.jobs, job.id):
            last = state
    assert last.state == "succeeded", last
    return last


async def final(made: Replica, job: Job) -> Calibration:
    """Wait for a calibration's job to succeed and return the calibration."""
    last = await ended(made, job)
    assert last.calibration_id is not None
    calibration = await made.calibrations.get(last.calibration_id)
    assert calibration is not None
    return calibration


async def undisturbed(folder: Path, rows: int) -> Calibration:
    """Return the calibration of the same rows without any fault."""
    url = f"sqlite:///{folder / 'calm.db'}"
    async with replica(url, LoggingLLM(), engine=TaskEngine()) as made:
        job, _ = await made.jobs.submit(dev_rows(rows), JobOptions())
        return await final(made, job)
