"""Durable jobs: the steps of a job, and the operations of callers on jobs."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from service.calibration.rows import DevRow
from service.errors import SERVER_MESSAGE, EigencalError, StoreUnavailable
from service.jobs.calibrator import Drawer
from service.jobs.model import Job, JobError, JobOptions
from service.jobs.store import JobEndedError, ReplacedError, RunningJob, SqlJobs, once_stored

if TYPE_CHECKING:
    from service.jobs.engine import DbosEngine

logger = logging.getLogger(__name__)

INTERNAL = JobError(code="internal", detail="The service failed at this job; its log has the details.")
STEPS = ("draw", "finish")
CANCEL_S = 5.0  # how long a caller who cancels waits for DBOS


# Finishes a job once its rows have answers. It may run again from its start after a crash.
Finish = Callable[[RunningJob], Awaitable[None]]


@dataclass(eq=False)
class JobSteps:
    """The steps of a job. They run in the application's event loop, and may run again after a crash.

    `slots`: number of rows that a job draws at the same time. Operations that fail because the store is
    unavailable are retried every `wait_s` seconds.
    """

    jobs: SqlJobs
    drawer: Drawer
    finisher: Finish
    slots: int
    wait_s: float = 1.0
    # Only one job at a time has its vectors in memory.
    _finishing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, name: str, job_id: str) -> bool:
        """Run one of `STEPS`; return False if the job has ended. An error of the step ends the job."""
        step = self.draw if name == "draw" else self.finish
        try:
            await once_stored(partial(step, job_id), self.wait_s)
        except JobEndedError:
            return False
        except EigencalError as error:
            # Details after SERVER_MESSAGE are the LLM server's words, which may repeat the prompt.
            logger.warning(
                "job %s failed: %s: %s", job_id, error.code, error.detail.partition(SERVER_MESSAGE)[0]
            )
            reason = JobError(code=error.code, detail=error.full_detail)
        except Exception:
            logger.exception("job %s failed", job_id)
            reason = INTERNAL
        else:
            return True
        with contextlib.suppress(JobEndedError):
            try:
                await once_stored(partial(self.jobs.fail, job_id, reason), self.wait_s)
            except Exception:  # the database cannot store the detail
                await once_stored(partial(self.jobs.fail, job_id, INTERNAL), self.wait_s)
        return False

    async def draw(self, job_id: str) -> None:
        """Set the job running and draw the answers that its rows lack, `slots` rows at a time.

        Rows that the LLM server refuses are asked for once more, because servers that restart or are
        overloaded refuse good requests for a while.
        """
        await self.jobs.begin(job_id)
        num_rows = (await self.jobs.running(job_id)).num_rows
        lines = await self.jobs.missing_lines(job_id)
        if lines:
            await self.jobs.stage(job_id, "sampling", num_rows, num_rows - len(lines))
            await self._draw(job_id, lines)
        await self._draw(job_id, await self.jobs.missing_lines(job_id, refused=True))

    async def _draw(self, job_id: str, lines: Iterable[int]) -> None:
        left = iter(lines)

        async def work() -> None:
            for line in left:
                await once_stored(partial(self.drawer.draw, job_id, line), self.wait_s)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.slots):
                    group.create_task(work())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def finish(self, job_id: str) -> None:
        """Embed, fit, report and end the job. Do it again if another calibration was activated meanwhile."""
        async with self._finishing:
            while True:
                try:
                    return await self.finisher(await self.jobs.running(job_id))
                except ReplacedError:
                    logger.info("job %s compares its calibration with one activated meanwhile", job_id)


class DurableJobs:
    """Durable jobs. Every method raises StoreUnavailable when the store cannot be reached.

    The engine gets the list of open jobs every `beat_s` seconds and when a job is new.

    A job is bound to the settings under which it was posted. Jobs of other settings are left to a service
    with those settings.
    """

    def __init__(
        self,
        store: SqlJobs,
        steps: JobSteps,
        engine: "DbosEngine",
        *,
        beat_s: float = 2.0,
    ) -> None:
        self.store = store
        self._steps = steps
        self._engine = engine
        self._beat_s = beat_s
        self._reconciler: asyncio.Task[None] | None = None
        self._has_new_job = asyncio.Event()

    async def start(self) -> None:
        """Start running jobs: interrupted jobs of this replica at once, jobs of dead peers after a while."""
        await self._engine.start(self._steps)
        self._reconciler = asyncio.create_task(self._reconciling(), name="jobs")

    async def stop(self) -> None:
        """Interrupt the running jobs; they go on at the next start, or on a peer. Idempotent."""
        reconciler, self._reconciler = self._reconciler, None
        if reconciler is not None:
            reconciler.cancel()
            await asyncio.wait({reconciler})
        await self._engine.stop()

    async def submit(
        self, rows: Iterable[DevRow], options: JobOptions, *, idempotency_key: str | None = None
    ) -> tuple[Job, bool]:
        """Store the rows and start a job for them. Return it, and True if it is new: `SqlJobs.submit`."""
        job, created = await self.store.submit(
            rows, options, idempotency_key, self._steps.drawer.generation_key
        )
        if created:
            logger.info("job %s accepted", job.id)
            self._has_new_job.set()
        return job, created

    async def queued(self, job_id: str | None) -> Job | None:
        """Start a job that `SqlJobs.retry` or `SqlJobs.correct` has queued, and return it."""
        if job_id is None:
            return None
        self._has_new_job.set()
        return await self.store.get(job_id)

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job, forget its rows and return it; None if there is no such job.

        A failed job can be cancelled too. The work of a job, here or on a peer, stops within a second or
        two. Raises Conflict when it has succeeded; cancelling twice is no error.
        """
        job = await self.store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            try:
                async with asyncio.timeout(CANCEL_S):
                    await self._engine.cancel(job_id)
            except Exception as error:  # the store accepts no more writes of this job anyway
                logger.warning("the job engine failed: %s", type(error).__name__)
        return job

    async def _reconciling(self) -> None:
        while True:
            self._has_new_job.clear()  # first: a job that arrives during the round gets another round
            try:
                await self._engine.reconcile(await self.store.open_jobs())
            except StoreUnavailable:
                pass  # it was logged; the next round tries again
            except Exception as error:
                logger.warning("the open jobs could not be checked: %s", type(error).__name__)
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._has_new_job.wait()
