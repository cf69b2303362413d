"""Watching jobs: those who watch the same job in this process share one poller."""

import asyncio
import contextlib
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from service.calibration.calibrator import Pipeline
from service.errors import StoreUnavailable
from service.jobs.engine import JobEngine, JobRunner
from service.jobs.model import CalibrateOptions, Correction, DevRow, Job, differing
from service.jobs.store import OpenJob
from service.store.jobs import SqlJobs
from service.store.replicas import Replicas

Get = Callable[[str], Awaitable[Job | None]]


class JobWatch:
    """Asks for a job every `poll_s` from the first watcher's coming to the last one's going or its end."""

    def __init__(self, get: Get, poll_s: float) -> None:
        self._get = get
        self._poll_s = poll_s
        self._polls: dict[str, _Poll] = {}

    async def states(self, job_id: str) -> AsyncGenerator[Job, None]:
        """Yield the job now and whenever it has changed, ending with its final state; nothing if unknown.

        A watcher who is slow holds up no other: it misses states, but never the last one. Raises what asking
        raised; all who watch the job then are told.
        """
        poll = self._joined(job_id)
        try:
            async for job in poll.states():
                yield job
        finally:
            self._leave(job_id, poll)

    def _joined(self, job_id: str) -> "_Poll":
        poll = self._polls.get(job_id)
        if poll is None or poll.over:
            poll = self._polls[job_id] = _Poll(self._get, job_id, self._poll_s)
        poll.watchers += 1
        return poll

    def _leave(self, job_id: str, poll: "_Poll") -> None:
        poll.watchers -= 1
        if poll.watchers:
            return
        poll.task.cancel()
        if self._polls.get(job_id) is poll:
            del self._polls[job_id]


class _Poll:
    """One job as last seen, and the task that looks. Each change sets `_changed` and puts a new one there."""

    def __init__(self, get: Get, job_id: str, poll_s: float) -> None:
        self.watchers = 0
        self.over = False
        self._job: Job | None = None
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run(get, job_id, poll_s), name=f"watch-{job_id}")

    async def states(self) -> AsyncGenerator[Job, None]:
        """Yield what one watcher has not seen yet, to the end."""
        seen: Job | None = None
        while True:
            # Taken before the look: a change in between sets this very event, and is not slept through.
            changed = self._changed
            if self._job is not None and self._job != seen:
                yield (seen := self._job)
            elif self._error is not None:
                raise self._error
            elif self.over:
                return
            else:
                await changed.wait()

    async def _run(self, get: Get, job_id: str, poll_s: float) -> None:
        try:
            # Shielded: one that is ended in the middle of a query would cost its database connection.
            while (job := await asyncio.shield(get(job_id))) is not None:
                self._tell(job)
                if job.finished:
                    break
                await asyncio.sleep(poll_s)
        except Exception as error:
            self._error = error
        finally:
            self.over = True
            self._changed.set()

    def _tell(self, job: Job) -> None:
        if job != self._job:
            self._job = job
            self._changed.set()
            self._changed = asyncio.Event()


# The queue of jobs: takes them in, has the engine run them, and hands on those that nobody runs.

logger = logging.getLogger(__name__)

TELL_S = 2.0  # as long as a cancelled job goes on anyway; a locked file of the engine holds it up for 20 s
CheckAlike = Callable[[AsyncIterable[DevRow] | Iterable[DevRow], CalibrateOptions], AsyncIterator[DevRow]]


class DurableJobs:
    """Implements `service.jobs.model.JobQueue`.

    The store tells which jobs are open, `replicas` who lives; every `beat_s`, and when there is something
    new, both are told to the engine, which sees that each open job waits or is run.

    Jobs are bound to the settings that they were posted under: those of other settings are left to a service
    that has them, and their `note` says so while none is there. `alike` refuses rows that cannot share a
    calibration.
    """

    def __init__(
        self,
        store: SqlJobs,
        replicas: Replicas,
        pipeline: Pipeline,
        engine: JobEngine,
        *,
        owner: str,
        alike: CheckAlike | None = None,
        beat_s: float = 1.0,
        poll_s: float = 0.3,
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._engine = engine
        self._run = JobRunner(store, pipeline, owner=owner, wait_s=beat_s)
        self._alike = alike
        self._beat_s = beat_s
        self._watched = JobWatch(self.get, poll_s)
        self._settler: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._keys = store.setup.keys()
        self._elsewhere: dict[str, str] = {}  # notes on jobs that no living replica has the settings for

    async def start(self) -> None:
        """Begin to run jobs: those left by this replica at once, those of dead peers after a while.

        Known to live first: peers would take over what a replica that they do not know runs.
        """
        await self._replicas.start()
        await self._engine.start(self._run)
        self._settler = asyncio.create_task(self._settling(), name="job-settler")

    async def stop(self) -> None:
        """Break off what runs; it goes on at the next start, or on a peer. Idempotent."""
        settler, self._settler = self._settler, None
        tasks = self._telling if settler is None else {settler, *self._telling}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._engine.stop()
        await self._replicas.stop()  # last: peers take over at once what is left

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
            self._news.set()
        return job, created

    async def check(self) -> None:
        """Return when jobs can be taken in; raise StoreUnavailable when not."""
        await self._store.check()
        await self._engine.check()

    async def retry(self, job_id: str) -> Job | None:
        """Have a job go on, or another for what it lacks; see `JobQueue`."""
        return await self._open(await self._store.retry(job_id))

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> Job | None:
        """Start a job on the same rows with corrected verdicts; see `JobQueue`."""
        return await self._open(await self._store.correct(job_id, corrections, options))

    async def _open(self, opened: OpenJob | None) -> Job | None:
        if opened is None:
            return None
        self._news.set()
        return await self.get(opened.job_id)

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
        """Cancel a job; see `JobQueue`. What runs of it, here or on a peer, stops within a second or two."""
        job = await self._store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            await self._tell_cancelled(job_id)
        return job

    async def _tell_cancelled(self, job_id: str) -> None:
        """Tell the engine and wait a little: cancelled the job is already, and its run can write no more."""
        telling = asyncio.create_task(self._try(self._engine.cancel(job_id)), name="job-cancel")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.wait({telling}, timeout=TELL_S)

    async def events(self, job_id: str) -> AsyncIterator[Job]:
        """Yield the job now and whenever it has changed, ending with its final state."""
        async with aclosing(self._watched.states(job_id)) as states:
            async for job in states:
                yield job

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results of an evaluation."""
        return await self._store.evaluation(job_id)

    async def _try(self, call: Awaitable[None]) -> None:
        """Tell the engine; should it fail, the job is as the store says: the next beat tells it again."""
        try:
            await call
        except Exception as error:
            logger.warning("the job engine failed: %s", type(error).__name__)

    async def _settling(self) -> None:
        while True:
            self._news.clear()  # before looking: what comes meanwhile is looked at again
            try:
                await self._mend_engine()
                await self._settle()
            except StoreUnavailable:
                pass  # it was logged; the engine is told once the store is back
            except Exception:
                logger.exception("the jobs could not be looked at")
            # Not `wait_for`: Python 3.11's swallows a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._news.wait()

    async def _settle(self) -> None:
        """Tell the engine which jobs are open and who lives; note those that none of the living can run."""
        living = await self._replicas.living()
        lanes = {job: self._lane(job) for job in await self._store.open_jobs()}
        served = {lane for replica in living for lane in replica.lanes}
        await self._note_elsewhere([job for job, lane in lanes.items() if lane not in served])
        ours = {job.job_id: lane for job, lane in lanes.items() if lane in self._keys}
        await self._try(self._engine.settle(ours, {replica.id for replica in living}))

    def _lane(self, job: OpenJob) -> str:
        """Return where the job runs; one of unknown settings is taken for one that draws, under ours."""
        return self._keys[0] if job.setup_key is None else job.setup_key

    async def _mend_engine(self) -> None:
        """Start the engine anew when it has lost what it keeps; the store tells which jobs are open.

        Raises StoreUnavailable while it cannot be started.
        """
        try:
            await self._engine.check()
        except StoreUnavailable:
            logger.warning("the job engine is started anew")
            await self._engine.stop()
            await self._engine.start(self._run)

    async def _note_elsewhere(self, waiting: Sequence[OpenJob]) -> None:
        """Keep a note on each of these jobs; log it once."""
        notes = {}
        for job in waiting:
            note = self._elsewhere.get(job.job_id)
            if note is None:
                note = self._elsewhere_note(await self._store.setup_of(job.job_id) or {})
                logger.warning("job %s: %s", job.job_id, note)
            notes[job.job_id] = note
        self._elsewhere = notes

    def _elsewhere_note(self, posted: dict[str, Any]) -> str:
        differs = differing(posted, self._store.setup.parts(draws=posted.get("draws", True)))
        return (
            "Waits for a service with the settings that it was posted under; "
            f"in this one these differ: {', '.join(differs)}."
        )
