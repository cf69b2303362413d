"""The queue of jobs: takes them in, has the engine run them, and shows them as they go on."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from service.calibration.rows import DevRow
from service.errors import StoreUnavailable
from service.jobs.model import Correction, Job, JobOptions, differing
from service.jobs.store import OpenJob, SqlJobs
from service.jobs.workflows import DbosEngine, JobSteps

logger = logging.getLogger(__name__)


class DurableJobs:
    """Durable jobs. Every method raises StoreUnavailable when the store cannot be reached.

    The store tells which jobs are open; every `beat_s`, and when there is something new, the engine is told,
    which sees that each waits or is run. Callers see how far one is every `poll_s`.

    Jobs are bound to the settings that they were posted under: those of other settings are left to a service
    that has them, and their `note` says so while none runs them.
    """

    def __init__(
        self,
        store: SqlJobs,
        steps: JobSteps,
        engine: DbosEngine,
        *,
        beat_s: float = 1.0,
        poll_s: float = 0.3,
    ) -> None:
        self.store = store
        self._steps = steps
        self._engine = engine
        self._beat_s = beat_s
        self._poll_s = poll_s
        self._settler: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._lanes = store.setup.keys()
        self._elsewhere: dict[str, str] = {}  # notes on jobs of other settings that nobody runs

    async def start(self) -> None:
        """Begin to run jobs: those left by this replica at once, those of dead peers after a while."""
        await self._engine.start(self._steps)
        self._settler = asyncio.create_task(self._settling(), name="job-settler")

    async def stop(self) -> None:
        """Break off what runs; it goes on at the next start, or on a peer. Idempotent."""
        settler, self._settler = self._settler, None
        if settler is not None:
            settler.cancel()
            await asyncio.wait({settler})
        await self._engine.stop()

    async def submit(
        self, rows: Iterable[DevRow], options: JobOptions, *, idempotency_key: str | None = None
    ) -> tuple[Job, bool]:
        """Store the rows and a job for them, start it; return it and whether it is new: `SqlJobs.submit`."""
        job, created = await self.store.submit(
            rows, options, idempotency_key, self._steps.drawer.generation_key
        )
        if created:
            logger.info("job %s accepted: %s", job.id, job.kind)
            self._news.set()
        return job, created

    async def retry(self, job_id: str) -> Job | None:
        """Have a job go on with the answers it has, and return it, or its successor: `SqlJobs.retry`."""
        return await self._queued(await self.store.retry(job_id))

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> Job | None:
        """Start a job on the rows of one that succeeded, with corrected verdicts: `SqlJobs.correct`."""
        return await self._queued(await self.store.correct(job_id, corrections, options))

    async def _queued(self, job_id: str | None) -> Job | None:
        if job_id is None:
            return None
        self._news.set()
        return await self.get(job_id)

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""
        job = await self.store.get(job_id)
        return None if job is None else self._noted(job)

    async def latest(self, *, limit: int = 100) -> list[Job]:
        """Return the latest jobs, latest first."""
        return [self._noted(job) for job in await self.store.latest(limit)]

    def _noted(self, job: Job) -> Job:
        note = "" if job.finished else self._elsewhere.get(job.id, "")
        return job.model_copy(update={"note": note}) if note else job

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job, forget its rows and return it; None if there is none such.

        A job that has failed can be given up like this, too. What runs of it, here or on a peer, stops within
        a second or two. Raises Conflict when it has succeeded; cancelling twice is no error.
        """
        job = await self.store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            try:
                await self._engine.cancel(job_id)
            except Exception as error:  # cancelled it is already: its run can write no more
                logger.warning("the job engine failed: %s", type(error).__name__)
        return job

    async def events(self, job_id: str) -> AsyncGenerator[Job]:
        """Yield the job now and whenever it has changed, ending with its final state; nothing if unknown.

        While the store cannot be reached there is nothing to tell.
        """
        last: Job | None = None
        while True:
            with contextlib.suppress(StoreUnavailable):
                job = await self.get(job_id)
                if job is not None and job != last:
                    yield job
                if job is None or job.finished:
                    return
                last = job
            await asyncio.sleep(self._poll_s)

    async def _settling(self) -> None:
        while True:
            self._news.clear()  # before looking: what comes meanwhile is looked at again
            try:
                await self._settle()
            except StoreUnavailable:
                pass  # it was logged; the engine is told once the store is back
            except Exception as error:
                logger.warning("the jobs could not be looked at: %s", type(error).__name__)
            # Not `wait_for`: Python 3.11's swallows a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._news.wait()

    async def _settle(self) -> None:
        """Tell the engine which jobs are open here; keep a note on those of other settings, logged once."""
        jobs = await self.store.open_jobs()
        ours = {job.id: job.setup_key for job in jobs if job.setup_key in self._lanes}
        running = await self._engine.settle(ours)
        waiting = [job for job in jobs if job.id not in ours and job.id not in running]
        notes = {job.id: self._elsewhere_note(job) for job in waiting}
        for job_id in notes.keys() - self._elsewhere.keys():
            logger.warning("job %s: %s", job_id, notes[job_id])
        self._elsewhere = notes

    def _elsewhere_note(self, job: OpenJob) -> str:
        differs = differing(job.setup, self.store.setup.parts(draws=job.setup["draws"]))
        return (
            "Waits for a service with the settings that it was posted under; "
            f"in this one these differ: {', '.join(differs)}."
        )
