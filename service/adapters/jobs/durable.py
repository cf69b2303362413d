"""The queue of jobs: takes them in, runs them under a lease, takes over those of dead replicas."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from service.adapters.jobs.engine import JobEngine, JobPart
from service.adapters.jobs.watch import JobWatch
from service.adapters.store import SqlJobs
from service.domain.calibrating.calibrator import Pipeline
from service.domain.errors import EigencalError, StoreUnavailable
from service.domain.jobs.model import CalibrateOptions, DevRow, Job, JobError
from service.domain.jobs.setup import differing, setup_key
from service.domain.jobs.store import ClaimedJob, Lease, LeaseLostError, OpenJob

logger = logging.getLogger(__name__)

CheckAlike = Callable[[AsyncIterable[DevRow] | Iterable[DevRow], CalibrateOptions], AsyncIterator[DevRow]]
INTERNAL = JobError("internal", "The service failed at this job; its log tells more.")


class DurableJobs:
    """Implements `service.domain.jobs.model.JobQueue`.

    Whoever runs a job claims it, which raises its epoch, and beats every `beat_s`. A job whose heartbeat has
    stood still for `lease_s` is revived here, by this replica's own clock. The former owner, should it wake,
    finds its lease lost at the next write or beat and stops.

    Jobs are bound to the settings that they were posted under: those of other settings are left to a service
    that has them, and their `note` says so. `alike` refuses rows that cannot share a calibration.
    """

    def __init__(
        self,
        store: SqlJobs,
        pipeline: Pipeline,
        engine: JobEngine,
        *,
        owner: str,
        alike: CheckAlike | None = None,
        beat_s: float = 1.0,
        lease_s: float = 10.0,
        poll_s: float = 0.3,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._engine = engine
        self._owner = owner
        self._alike = alike
        self._beat_s, self._lease_s = beat_s, lease_s
        self._watched = JobWatch(self.get, poll_s)
        self._running: dict[asyncio.Task[None], str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._keys = store.setup.keys()
        self._elsewhere: dict[str, str] = {}  # notes on jobs that stand still, bound to other settings

    async def start(self) -> None:
        """Begin to run jobs: those left by this replica at once, those of dead peers after a while."""
        await self._engine.start(self._run)
        self._watcher = asyncio.create_task(self._watch(), name="job-watcher")

    async def stop(self) -> None:
        """Break off what runs; it goes on at the next start. Idempotent."""
        tasks = [task for task in (self._watcher, *self._running) if task is not None]
        self._watcher = None
        await self._break_off(tasks)
        await self._engine.stop()

    async def _break_off(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def submit(
        self,
        rows: AsyncIterable[DevRow] | Iterable[DevRow],
        options: CalibrateOptions,
        *,
        idempotency_key: str | None = None,
    ) -> tuple[Job, bool]:
        """Store rows and job, and have it run; see `JobQueue`."""
        await self.check()
        if self._alike is not None:
            rows = self._alike(rows, options)
        job, created = await self._store.submit(rows, options, idempotency_key)
        if created:
            logger.info("job %s accepted: %s", job.id, job.kind)
            await self._try(self._enqueue(job.id))
        return job, created

    async def check(self) -> None:
        """Return when jobs can be taken in; raise StoreUnavailable when not."""
        await self._store.check()
        await self._engine.check()

    async def _enqueue(self, job_id: str) -> None:
        await self._engine.enqueue(job_id, setup_key(await self._store.setup_of(job_id) or {}))

    async def retry(self, job_id: str) -> Job | None:
        """Have a job that failed go on; see `JobQueue`."""
        queued = await self._store.retry(job_id)
        if queued is not None:
            await self._try(self._engine.retry(job_id, self._lane(queued), queued.epoch))
        return await self.get(job_id)

    def _lane(self, job: OpenJob) -> str:
        """Return where the job runs; one of unknown settings is taken for one that draws, under ours."""
        return self._keys[0] if job.setup_key is None else job.setup_key

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""
        job = await self._store.get(job_id)
        return None if job is None else self._noted(job)

    async def latest(self, *, limit: int = 100) -> list[Job]:
        """Return the latest jobs, latest first."""
        return [self._noted(job) for job in await self._store.latest(limit)]

    def _noted(self, job: Job) -> Job:
        note = "" if job.finished else self._elsewhere.get(job.id, "")
        return replace(job, note=note) if note else job

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job; see `JobQueue`. What runs of it stops at its next beat, at once if it runs here."""
        job = await self._store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            for task in [task for task, running in self._running.items() if running == job_id]:
                task.cancel()
            await self._try(self._engine.cancel(job_id))
        return job

    async def events(self, job_id: str) -> AsyncIterator[Job]:
        """Yield the job now and whenever it has changed, ending with its final state."""
        async with aclosing(self._watched.states(job_id)) as states:
            async for job in states:
                yield job

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results of an evaluation."""
        return await self._store.evaluation(job_id)

    async def _try(self, call: Awaitable[None]) -> None:
        """Tell the engine; should it fail, the job is as the store says, and the watcher will see to it."""
        try:
            await call
        except Exception as error:
            logger.warning("the job engine failed: %s", type(error).__name__)

    async def _run(self, job_id: str, part: JobPart) -> None:
        """Run one part of a job; called by the engine. Cancelled when the lease is lost."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a part of a job runs in a task")
        self._running[task] = job_id
        try:
            claimed = await self._claim(job_id)
            if claimed is not None:
                begins = "begins" if claimed.lease.epoch == 1 else "goes on"
                logger.info(
                    "job %s %s: %s, claim %d by %s", job_id, begins, part, claimed.lease.epoch, self._owner
                )
                await self._work(claimed, getattr(self._pipeline, part))
        except LeaseLostError:
            logger.info("job %s is run elsewhere or was cancelled", job_id)
            raise asyncio.CancelledError from None
        finally:
            del self._running[task]

    async def _claim(self, job_id: str) -> ClaimedJob | None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await self._store.claim(job_id, self._owner, keys=self._keys)
            await asyncio.sleep(self._beat_s)

    async def _work(self, job: ClaimedJob, part: Callable[[ClaimedJob], Awaitable[None]]) -> None:
        """Run the part again for as long as the store is what fails it; any other error ends the job.

        Not before the store takes writes again: what is drawn meanwhile could not be kept.
        """
        while True:
            try:
                return await self._outcome(job, part)
            except StoreUnavailable:
                await self._until_well()

    async def _until_well(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            with contextlib.suppress(StoreUnavailable):
                return await self._store.check()

    async def _outcome(self, job: ClaimedJob, part: Callable[[ClaimedJob], Awaitable[None]]) -> None:
        try:
            await self._beating(job.lease, part(job))
        except (StoreUnavailable, LeaseLostError):
            raise
        except EigencalError as error:
            await self._store.fail(job.lease, JobError(error.code, error.detail))
            said = error.extra.get("llm_message")
            llm = f" The LLM server said: {said!r}" if said else ""
            logger.warning("job %s failed: %s: %s%s", job.lease.job_id, error.code, error.detail, llm)
        except Exception:
            logger.exception("job %s failed", job.lease.job_id)
            await self._store.fail(job.lease, INTERNAL)

    async def _beating(self, lease: Lease, work: Awaitable[None]) -> None:
        """Await the work, beating meanwhile; stop it when the lease is lost."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._beat_s))[0]:
                with contextlib.suppress(StoreUnavailable):  # the work itself will notice
                    await self._store.beat(lease)
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # it may have failed while we were being stopped: no one else asks

    async def _watch(self) -> None:
        """Revive open jobs whose heartbeat stands still, those that are bound to other settings excepted."""
        seen: dict[OpenJob, float] = {}
        while True:
            await asyncio.sleep(self._beat_s)
            try:
                open_jobs = await self._store.open_jobs()
                await self._mend_engine()
            except StoreUnavailable:
                seen = {}  # nobody could beat meanwhile
                continue
            now = time.monotonic()
            seen = {job: seen.get(job, now) for job in open_jobs}
            still = [job for job, since in seen.items() if now - since >= self._lease_s]
            await self._note_elsewhere([job for job in still if self._lane(job) not in self._keys])
            for job in [job for job in still if self._lane(job) in self._keys]:
                seen[job] = now
                if job.job_id not in self._running.values():
                    await self._try(self._engine.revive(job.job_id, self._lane(job), job.epoch))

    async def _mend_engine(self) -> None:
        """Start the engine anew when it has lost what it keeps; the store tells which jobs are open.

        Raises StoreUnavailable while it cannot be started.
        """
        try:
            await self._engine.check()
        except StoreUnavailable:
            logger.warning("the job engine is started anew")
            await self._break_off([*self._running])
            await self._engine.stop()
            await self._engine.start(self._run)

    async def _note_elsewhere(self, still: Sequence[OpenJob]) -> None:
        """Keep a note on each of these jobs; log it once."""
        notes = {}
        for job in still:
            note = self._elsewhere.get(job.job_id)
            if note is None:
                with contextlib.suppress(StoreUnavailable):
                    note = self._elsewhere_note(await self._store.setup_of(job.job_id) or {})
                    logger.warning("job %s: %s", job.job_id, note)
            if note is not None:
                notes[job.job_id] = note
        self._elsewhere = notes

    def _elsewhere_note(self, posted: dict[str, Any]) -> str:
        differs = differing(posted, self._store.setup.parts(draws=posted.get("draws", True)))
        return (
            "Waits for a service with the settings that it was posted under; "
            f"in this one these differ: {', '.join(differs)}."
        )
