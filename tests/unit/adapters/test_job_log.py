"""What the log says of jobs: waiting, failing, cancelled, taken over from a replica that was killed."""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from service.calibration.calibration import CalibrateOptions
from service.errors import LLMError
from service.jobs.model import JobStage
from service.jobs.progress import NOTE_AGAIN_S, Progress
from service.jobs.store import Lease
from tests.support.fakes import FakeLLM
from tests.support.job_worker import LoggingLLM, Replica, dev_rows, replica
from tests.support.processes import ended, kill, until_asked, worker
from tests.support.task_engine import TaskEngine

pytestmark = pytest.mark.anyio
ROWS = 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="service")


async def submitted(made: Replica) -> str:
    return (await made.jobs.submit(dev_rows(ROWS), CalibrateOptions()))[0].id


async def until(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait for what is told after the store has it."""
    async with asyncio.timeout(60):
        while text not in caplog.text:
            await asyncio.sleep(0.01)


async def test_a_failure_is_told_with_what_the_llm_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = LLMError("The LLM server answered with status 401.", llm_status=401, llm_message="no\nkey")
    llm = FakeLLM(fail_with=[refused] * 100)
    async with replica(f"sqlite:///{tmp_path / 'store.db'}", "one", llm, engine=TaskEngine()) as made:
        job_id = await submitted(made)
        said = r"failed: llm_error: The LLM server answered with status 401. The LLM server said: 'no\nkey'"
        await until(caplog, f"job {job_id} {said}")


async def test_waiting_and_cancelling_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm = FakeLLM()
    llm.available = False
    async with replica(f"sqlite:///{tmp_path / 'store.db'}", "one", llm, engine=TaskEngine()) as made:
        job_id = await submitted(made)
        await until(caplog, f"job {job_id}: Waiting to try again: The LLM is not available.")
        await made.jobs.cancel(job_id)
    assert f"job {job_id} cancelled" in caplog.messages


async def test_a_wait_that_comes_and_goes_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    class Nowhere:
        async def progress(
            self, lease: Lease, stage: JobStage, done: int, total: int, eta_s: float | None, note: str
        ) -> None:
            pass

    now = 0.0
    progress = Progress(Nowhere(), Lease("job_1", "one", 1), "sampling", 9, clock=lambda: now)
    for _ in range(3):
        await progress.note("waiting")
        await progress.advance()
    now = NOTE_AGAIN_S
    await progress.note("waiting")
    await progress.note("waiting for another thing")
    assert caplog.messages == ["job job_1: waiting"] * 2 + ["job job_1: waiting for another thing"]


async def test_a_job_taken_over_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"

    class Idle(TaskEngine):
        async def settle(self, jobs: Mapping[str, str], living: Collection[str]) -> None:
            pass

    async with worker(url, log, name="first", slow_s=2.0) as process:
        async with replica(url, "outside", FakeLLM(), engine=Idle()) as outside:
            job, _ = await outside.jobs.submit(dev_rows(ROWS), CalibrateOptions())
            await until_asked(log, 3)
        await kill(process)
    caplog.clear()
    async with replica(url, "second", LoggingLLM()) as made:
        last = await ended(made, job)
        await until(caplog, f"job {job.id} succeeded: calibration {last.calibration_id}. ")
    assert f"job {job.id}: nobody seems to run it, it is taken over" in caplog.messages
    assert re.search(rf"job {job.id} goes on: claim \d+ by second", caplog.text)
