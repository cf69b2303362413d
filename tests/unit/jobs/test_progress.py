"""Progress of long work in a thread."""

import asyncio
import threading

import pytest

from service.calibration.fitting import OnDone
from service.errors import StoreUnavailable
from service.jobs import calibrator
from service.jobs.calibrator import BrokenOffError, in_thread
from service.jobs.store import JobEndedError

pytestmark = pytest.mark.usefixtures("bounded")


class Jobs:
    """Records progress, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.shown = asyncio.Event()

    async def stage(self, job_id: str, stage: str, total: int) -> None:
        self.shown.set()

    async def progress(self, job_id: str, done: int) -> None:
        if self.error is not None:
            raise self.error


class Work:
    """Reports progress until it is stopped or may end."""

    def __init__(self) -> None:
        self.may_end, self.broken_off = threading.Event(), threading.Event()

    def __call__(self, report: OnDone) -> str:
        try:
            while not self.may_end.wait(0.01):
                report(0, 1)
        except BrokenOffError:
            self.broken_off.set()
            raise
        return "done"

    async def stopped(self) -> bool:
        return await asyncio.to_thread(self.broken_off.wait, 60)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrator, "EVERY_S", 0.01)


async def show(work: Work, jobs: Jobs) -> str:
    return await in_thread(work, jobs, "job_1", "fitting")  # type: ignore[arg-type]


async def test_work_of_an_ended_job_is_stopped() -> None:
    work = Work()
    with pytest.raises(JobEndedError):
        await show(work, Jobs(JobEndedError("job_1")))
    assert await work.stopped()


async def test_work_of_a_cancelled_caller_is_stopped() -> None:
    work, jobs = Work(), Jobs()
    task = asyncio.create_task(show(work, jobs))
    await jobs.shown.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await work.stopped()


async def test_failing_store_loses_only_progress() -> None:
    work, jobs = Work(), Jobs(StoreUnavailable("down"))
    task = asyncio.create_task(show(work, jobs))
    await jobs.shown.wait()
    work.may_end.set()
    assert await task == "done"
