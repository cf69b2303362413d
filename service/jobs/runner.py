"""Durable jobs: the steps of a job, and the operations of callers on jobs."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from service.calibration.rows import DevRow
from service.errors import SERVER_MESSAGE, EigencalError, StoreUnavailable
from service.jobs.calibrator import Drawer
from service.jobs.model import Job, JobError, JobOptions
from service.jobs.store import JobEndedError, RunningJob, SqlJobs, once_stored

if TYPE_CHECKING:
    from service.jobs.engine import DbosEngine

logger = logging.getLogger(__name__)

INTERNAL = JobError(code="internal", detail="The service failed at this job; its log has the details.")
CHUNKS_PER_SLOT = 4  # chunks are small, so that all slots stay busy until the end of a job
MAX_CHUNK = 32  # rows
CANCEL_S = 5.0  # how long a caller who cancels waits for DBOS


# Finishes a job once its rows have answers. It may run again from its start after a crash.
Finish = Callable[[RunningJob], Awaitable[None]]


@dataclass(eq=False)
class JobSteps:
    """The steps of a job. They run in the application's event loop, and may run again after a crash.

    `slots`: requests to the LLM that all replicas together have in flight. A step that fails because the
    store is unavailable runs again every `wait_s` seconds.
    """

    jobs: SqlJobs
    drawer: Drawer
    finisher: Finish
    slots: int
    wait_s: float = 1.0
    # Only one job at a time has its vectors in memory.
    _finishing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, name: str, job_id: str, *args: Any) -> list[list[int]] | None:
        """Return the chunks of lines that a step plans, or []; None for a job that has ended.

        An error of the step ends the job.
        """
        step = self.drawer.draw if name == "draw" else getattr(self, name)
        try:
            return await once_stored(partial(step, job_id, *args), self.wait_s) or []
        except JobEndedError:
            return None
        except EigencalError as error:
            # Details after SERVER_MESSAGE are the LLM server's words, which may repeat the prompt.
            logger.warning(
                "job %s failed: %s: %s", job_id, error.code, error.detail.partition(SERVER_MESSAGE)[0]
            )
            reason = JobError(code=error.code, detail=error.full_detail)
        except Exception:
            logger.exception("job %s failed", job_id)
            reason = INTERNAL
        with contextlib.suppress(JobEndedError):
            try:
                await once_stored(partial(self.jobs.fail, job_id, reason), self.wait_s)
            except Exception:  # the database cannot store the detail
                await once_stored(partial(self.jobs.fail, job_id, INTERNAL), self.wait_s)
        return None

    async def plan(self, job_id: str, refused: bool = False) -> list[list[int]]:
        """Set the job running and return the lines of the rows that lack answers, in chunks.

        `refused`: return the rows that the LLM server refused instead. They are asked for once more because
        servers that restart or are overloaded refuse good requests for a while.
        """
        if not refused:
            await self.jobs.begin(job_id)
        # Not `begin` again: a job that has failed and is retried begins in a workflow of its own.
        job = await self.jobs.running(job_id)
        lines = await self.jobs.missing_lines(job_id, refused=refused)
        if lines and not refused:
            await self.jobs.stage(job_id, "sampling", job.num_rows, job.num_rows - len(lines))
        size = min(MAX_CHUNK, -(-len(lines) // (CHUNKS_PER_SLOT * self.slots)) or 1)
        return [lines[begin : begin + size] for begin in range(0, len(lines), size)]

    async def finish(self, job_id: str) -> None:
        """Embed, fit, report and end the job."""
        async with self._finishing:
            await self.finisher(await self.jobs.running(job_id))


async def run_job(job_id: str, engine: "DbosEngine") -> None:
    """Run a job to its end."""
    logger.info("job %s runs on this replica", job_id)
    with contextlib.suppress(JobEndedError):
        for refused in (False, True):
            await engine.draw(job_id, await engine.step("plan", job_id, refused))
        await engine.step("finish", job_id)


async def draw_chunk(job_id: str, lines: Sequence[int], engine: "DbosEngine") -> None:
    """Draw rows one after the other."""
    with contextlib.suppress(JobEndedError):
        for line in lines:
            await engine.step("draw", job_id, line)


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
