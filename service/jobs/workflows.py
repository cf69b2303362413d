"""Jobs, taken in and run as workflows of DBOS: drawn in chunks of rows on all replicas, then finished.

A job's own workflow waits in the queue of its settings, of which a replica takes one at a time. It puts the
rows that lack answers, in chunks, into a second queue, from which every replica of these settings takes. A
row is a step: DBOS refuses the step of a replica whose workflow was taken over, and so ends a run that was
frozen and wakes. What a step has done is in our own tables; DBOS keeps but how far it is.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from sqlalchemy.engine import URL

from service.calibration.rows import DevRow
from service.errors import SERVER_MESSAGE, EigencalError, StoreUnavailable
from service.jobs.calibrator import Drawer, for_owner
from service.jobs.model import Correction, Job, JobError, JobKind, JobOptions
from service.jobs.store import JobEndedError, RunningJob, SqlJobs
from service.store.database import IDLE_S, sync_url, translated

if TYPE_CHECKING:
    from service.jobs.presence import Presence

T = TypeVar("T")
logger = logging.getLogger(__name__)

INTERNAL = JobError(code="internal", detail="The service failed at this job; its log tells more.")
# So many chunks for each request at once: the last ones of a job keep all busy, few as they are.
CHUNKS_PER_SLOT = 4
MAX_CHUNK = 32  # rows
CANCEL_S = 5.0  # that a caller who cancels waits for the engine


# Does the rest of a kind of job with its answers and ends it; may be run again from its start after a crash.
Finish = Callable[[RunningJob], Awaitable[None]]


@dataclass(eq=False)
class JobSteps:
    """The steps of jobs, run in the application's event loop; each may be run again after a crash.

    `slots`: requests that all replicas together have under way at once. A store that fails is asked again
    every `wait_s`.
    """

    jobs: SqlJobs
    drawer: Drawer
    finishers: Mapping[JobKind, Finish]
    slots: int
    wait_s: float = 1.0
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)  # one job at a time has its vectors in memory

    async def run(self, name: str, job_id: str, *args: Any) -> dict[str, Any]:
        """Return the `value` of a step, or that the job has `ended`; an error ends it."""
        step = self.drawer.draw if name == "draw" else getattr(self, name)
        try:
            return {"value": await self._once_stored(partial(step, job_id, *args))}
        except JobEndedError:
            return {"ended": True}
        except EigencalError as error:
            # Some details hold what the LLM server said of a row, which may repeat the prompt.
            logger.warning(
                "job %s failed: %s: %s", job_id, error.code, error.detail.partition(SERVER_MESSAGE)[0]
            )
            why = JobError(code=error.code, detail=for_owner(error))
        except Exception:
            logger.exception("job %s failed", job_id)
            why = INTERNAL
        with contextlib.suppress(JobEndedError):
            try:
                await self._once_stored(partial(self.jobs.fail, job_id, why))
            except Exception:  # of a detail that the store cannot take
                await self._once_stored(partial(self.jobs.fail, job_id, INTERNAL))
        return {"ended": True}

    async def _once_stored(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return what a step does, run again while the store is what fails: that fails no job."""
        while True:
            try:
                return await step()
            except StoreUnavailable:
                await asyncio.sleep(self.wait_s)

    async def begin(self, job_id: str) -> None:
        """Set the job running."""
        began = await self.jobs.begin(job_id)
        logger.info("job %s %s", job_id, "begins" if began else "goes on")
        if missing := await self.jobs.missing_lines(job_id):
            total = (await self.jobs.running(job_id)).num_rows
            await self.jobs.stage(job_id, "sampling", total, total - len(missing))

    async def missing(self, job_id: str) -> list[list[int]]:
        """Return the lines of the rows that lack answers, in chunks."""
        await self.jobs.running(job_id)
        lines = await self.jobs.missing_lines(job_id)
        size = min(MAX_CHUNK, -(-len(lines) // (CHUNKS_PER_SLOT * self.slots)) or 1)
        return [lines[begin : begin + size] for begin in range(0, len(lines), size)]

    async def finish(self, job_id: str) -> None:
        """Do the rest of the job."""
        async with self._one:
            job = await self.jobs.running(job_id)
            await self.finishers[job.options.kind](job)


async def run_job(job_id: str, engine: "DbosEngine") -> None:
    """Run a job to its end."""
    with contextlib.suppress(JobEndedError):
        await engine.step("begin", job_id)
        await engine.draw(job_id, await engine.step("missing", job_id))
        await engine.step("finish", job_id)


async def draw_chunk(job_id: str, lines: Sequence[int], engine: "DbosEngine") -> None:
    """Draw rows one after the other."""
    with contextlib.suppress(JobEndedError):
        for line in lines:
            await engine.step("draw", job_id, line)


# DBOS runs workflows in a thread of its own; the steps run in the application's event loop, where the LLM and
# the embedder live.

# Raised when workflows of the old shape could not go on with the new code: `settle` begins them anew.
WORKFLOW_VERSION = "5"
SCHEMA = "eigencal_jobs"
_POLL_S = 0.5
OWNED = "The SQLite file is another process's: several replicas need PostgreSQL (EIGENCAL_DATABASE_URL)."
_WAITS, _RUNS = "ENQUEUED", "PENDING"  # as DBOS calls them


def queue_of(lane: str, of: str = "jobs") -> str:
    """Return the name of the queue of a lane's jobs, or of their chunks of rows.

    Of this version: what an earlier one left pending for good counts in its own.
    """
    return f"eigencal-{of}-{WORKFLOW_VERSION}-{lane}"


class _Current:
    """DBOS is one per process and its workflows are plain functions: this is how they find their engine."""

    engine: "DbosEngine | None" = None
    job: Any = None
    chunk: Any = None


async def _run_job(job_id: str) -> None:
    await _ending_quietly(partial(run_job, job_id))


async def _run_chunk(job_id: str, lines: list[int]) -> None:
    await _ending_quietly(partial(draw_chunk, job_id, lines))


async def _ending_quietly(work: Callable[["DbosEngine"], Awaitable[None]]) -> None:
    from dbos import error

    if _Current.engine is None:
        raise asyncio.CancelledError  # stopping: the workflow stays pending
    try:
        await work(_Current.engine)
    except (error.DBOSWorkflowCancelledError, error.DBOSWorkflowConflictIDError):
        # Cancelled, or a peer's by now. DBOS would wait for its outcome and log a traceback.
        raise asyncio.CancelledError from None


class DbosEngine:
    """Runs jobs in the event loop that called `start`, and remembers which of their steps were done.

    `lanes`: of those the jobs are run here, one job of each at a time. `url`: of the database where DBOS
    keeps its tables. A replica is dead, and its peers take its workflows over, when its session with Postgres
    has ended, or was silent for `lease_s`.
    """

    def __init__(self, url: URL, *, lanes: Sequence[str], lease_s: float = 10.0) -> None:
        self._url = sync_url(url)
        self._presence: Presence | None = None
        # A SQLite file has one process, which goes on with its jobs whenever it comes back.
        self.executor_id = "only"
        if url.get_backend_name() == "postgresql":
            from service.jobs import presence  # with 7 MiB of psycopg

            self.executor_id = f"{socket.gethostname()}-{secrets.token_hex(4)}"
            self._presence = presence.Presence(self._url, self.executor_id, lease_s=lease_s)
            logger.info("this is replica %s", self.executor_id)
        self._ownership: IO[str] | None = None
        self._lanes = lanes
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, steps: JobSteps) -> None:
        """Launch DBOS, which takes up what this executor left.

        Raises StoreUnavailable, also where another process has the SQLite file, and RuntimeError if another
        engine runs.
        """
        if _Current.engine is not None:
            raise RuntimeError("only one engine of durable jobs can run in a process")
        self._loop, self.steps = asyncio.get_running_loop(), steps
        _Current.engine = self
        try:
            if self._presence is not None:
                await self._presence.hold()  # first: peers would take over what a replica without it runs
                self._tasks.add(asyncio.create_task(self._presence.keep()))
            else:
                self._ownership = _own(Path(str(self._url.database)))
            with translated():
                await asyncio.to_thread(self._launch, steps.slots)
        except BaseException:
            # What DBOS has begun goes: it would refuse the next launch, when there may be room again.
            await self.stop()
            raise

    def _launch(self, slots: int) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        if _Current.job is None:
            # Registered once a process; no bound on recoveries, after which DBOS would give a job up.
            _Current.job = DBOS.workflow(name="job", max_recovery_attempts=None)(_run_job)
            _Current.chunk = DBOS.workflow(name="chunk", max_recovery_attempts=None)(_run_chunk)
        config: DBOSConfig = {
            "name": "eigencal",
            "system_database_url": jobs_url(self._url),
            "dbos_system_schema": SCHEMA,
            # Else a hash of DBOS's version and of the code: a release would orphan the workflows of the last.
            "application_version": WORKFLOW_VERSION,
            "executor_id": self.executor_id,
            "serializer": DBOSPortableJSONSerializer(),  # not pickle, which runs code when it is read
            "sys_db_idle_transaction_timeout_sec": IDLE_S,  # as in our own tables
            "notification_listener_polling_interval_sec": 0.1,  # on SQLite a stop waits for as long
            "enable_otlp": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        jobs, chunks = [queue_of(lane) for lane in self._lanes], queue_of(self._lanes[0], "rows")
        # Before the launch, as DBOS demands: else jobs of other settings would be taken, too.
        DBOS.listen_queues([*jobs, chunks])
        DBOS.launch()
        register = partial(DBOS.register_queue, polling_interval_sec=_POLL_S, on_conflict="always_update")
        for queue in jobs:
            register(queue, worker_concurrency=1)
        register(chunks, global_concurrency=slots)

    async def stop(self) -> None:
        """Break off what runs and stop DBOS; the workflows stay pending. Idempotent."""
        from dbos import DBOS

        if _Current.engine is not self:
            return
        _Current.engine = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.to_thread(DBOS.destroy)
        finally:  # last: peers take over at once what is left
            if self._presence is not None:
                await self._presence.leave()
            if self._ownership is not None:
                self._ownership.close()

    async def step(self, name: str, job_id: str, *args: Any) -> Any:
        """Return what a step returns: it is run once, however often its workflow is begun anew.

        Raises JobEndedError.
        """
        from dbos import DBOS

        if name == "begin":  # each time: the job goes on
            result = await self._in_application(name, job_id)
        else:
            options: Any = {"name": name, "preemptible": True}
            result = await DBOS.run_step_async(options, self._in_application, name, job_id, *args)
        if "ended" in result:
            raise JobEndedError(job_id)
        return result["value"]

    async def _in_application(self, name: str, job_id: str, *args: Any) -> dict[str, Any]:
        """Run a step in the application's loop; called in DBOS's. Cancelled here, it is cancelled there."""
        work = self._tracked(self.steps.run(name, job_id, *args))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _tracked(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await task

    async def draw(self, job_id: str, chunks: list[list[int]]) -> None:
        """Have all replicas draw the chunks; return when all are drawn."""
        from dbos import DBOS

        queue = queue_of(self._lanes[0], "rows")
        handles = [
            await DBOS.enqueue_workflow_async(queue, _Current.chunk, job_id, chunk) for chunk in chunks
        ]
        for handle in handles:
            await handle.get_result(polling_interval_sec=_POLL_S)

    async def settle(self, ours: Mapping[str, str]) -> None:
        """See that each of these open jobs, its lane by its id, waits or is run.

        What dead replicas ran is taken over.
        """
        if self._presence is not None:
            running = await asyncio.to_thread(_listed, status=[_RUNS])
            for executor_id in {one.executor_id for one in running} - {self.executor_id}:
                try:
                    await self._take_over(executor_id, self._presence)
                except Exception as error:  # whether it is dead cannot be told now: our own jobs go on
                    logger.warning("replica %s cannot be asked for: %s", executor_id, type(error).__name__)
        unfinished = await asyncio.to_thread(_listed, status=[_WAITS, _RUNS], name="job")
        for job_id in ours.keys() - {_job_of(one) for one in unfinished}:
            await asyncio.to_thread(_enqueue, job_id, queue_of(ours[job_id]))

    async def _take_over(self, executor_id: str, presence: "Presence") -> None:
        from dbos import DBOS

        async with presence.instead_of(executor_id) as dead:
            if not dead:
                return
            # Listed anew: a peer that had the lock before may have taken them over, and run them.
            if workflows := await asyncio.to_thread(_listed, status=[_RUNS], executor_id=executor_id):
                names = ", ".join(sorted({_job_of(one) for one in workflows}))
                logger.warning("replica %s is dead: what it ran is taken over: %s", executor_id, names)
                for one in workflows:
                    await asyncio.to_thread(DBOS.resume_workflow, one.workflow_id, queue_name=one.queue_name)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job's workflows: DBOS breaks off their steps within a second or two, on any replica."""
        from dbos import DBOS

        unfinished = await asyncio.to_thread(_listed, workflow_id_prefix=job_id, status=[_WAITS, _RUNS])
        await asyncio.to_thread(DBOS.cancel_workflows, [one.workflow_id for one in unfinished])


def _own(path: Path) -> IO[str]:
    """Return what shows, until it is closed or the process dies, that a SQLite file is this process's.

    Two would each take the other's jobs for left over. Raises StoreUnavailable.
    """
    import fcntl

    with translated():
        owner = path.resolve().with_name(f"{path.resolve().name}.owner").open("w")
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner.close()
        raise StoreUnavailable(OWNED) from None
    return owner


def _listed(**which: Any) -> list[Any]:
    """Return workflows of this version, which alone can be run here."""
    from dbos import DBOS

    return DBOS.list_workflows(load_input=False, load_output=False, app_version=WORKFLOW_VERSION, **which)


def _job_of(workflow: Any) -> str:
    """Return the id of the job of a workflow: its own id begins with that, and ids of jobs hold no dash."""
    return str(workflow.workflow_id).partition("-")[0]


def _enqueue(job_id: str, queue: str) -> None:
    """Begin the job's next workflow. Peers that do so at once give it the same id: it begins once."""
    from dbos import DBOS, SetWorkflowID

    earlier = DBOS.list_workflows(workflow_id_prefix=job_id, name="job", load_input=False, load_output=False)
    if not any(one.status in (_WAITS, _RUNS) and one.app_version == WORKFLOW_VERSION for one in earlier):
        with SetWorkflowID(f"{job_id}-{len(earlier)}"):
            DBOS.enqueue_workflow(queue, _Current.job, job_id)


def jobs_url(url: URL) -> str:
    """Return the URL where DBOS keeps its tables: a file beside ours, or the same Postgres (own schema)."""
    if url.get_backend_name() == "sqlite":
        url = url.set(database=f"{url.database}.jobs")
    # str() of a URL has asterisks in place of the password.
    return url.render_as_string(hide_password=False)


class DurableJobs:
    """Durable jobs. Every method raises StoreUnavailable when the store cannot be reached.

    The store tells which jobs are open; every `beat_s`, and when there is something new, the engine is told,
    which sees that each waits or is run. Callers see how far one is every `poll_s`.

    Jobs are bound to the settings that they were posted under: those of other settings are left to a service
    that has them.
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
        return await self.store.get(job_id)

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job, forget its rows and return it; None if there is none such.

        A job that has failed can be given up like this, too. What runs of it, here or on a peer, stops within
        a second or two. Raises Conflict when it has succeeded; cancelling twice is no error.
        """
        job = await self.store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            try:
                async with asyncio.timeout(CANCEL_S):
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
                job = await self.store.get(job_id)
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
                await self._engine.settle(await self.store.open_jobs())
            except StoreUnavailable:
                pass  # it was logged; the engine is told once the store is back
            except Exception as error:
                logger.warning("the jobs could not be looked at: %s", type(error).__name__)
            # Not `wait_for`: Python 3.11's swallows a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._news.wait()
