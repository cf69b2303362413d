"""Durable jobs: workflows of DBOS that draw the rows of a job on all replicas and then finish the job.

A job is a workflow. It waits in the queue of its settings, and a replica runs one workflow of a queue at a
time. The workflow divides the rows that lack answers into chunks. Each chunk is a workflow of its own, in a
second queue from which all replicas of these settings take. Answers are stored in `dev_rows` as they come;
DBOS stores only which steps are done.

DBOS runs on a replica while a job of the replica's settings is open. An idle replica only asks the store for
open jobs.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from service.calibration.rows import DevRow
from service.errors import SERVER_MESSAGE, EigencalError, StoreUnavailable
from service.jobs.calibrator import Drawer, for_owner
from service.jobs.model import Correction, Job, JobError, JobKind, JobOptions
from service.jobs.store import JobEndedError, RunningJob, SqlJobs, once_stored
from service.store.database import IDLE_S, sync_url, translated

if TYPE_CHECKING:
    from service.jobs.presence import Presence

logger = logging.getLogger(__name__)

INTERNAL = JobError(code="internal", detail="The service failed at this job; its log tells more.")
CHUNKS_PER_SLOT = 4  # the last chunks of a job are small, so that all slots are busy until the end
MAX_CHUNK = 32  # rows
CANCEL_S = 5.0  # how long a caller who cancels waits for DBOS


# Finishes a kind of job once its rows have answers. It may run again from its start after a crash.
Finish = Callable[[RunningJob], Awaitable[None]]


@dataclass(eq=False)
class JobSteps:
    """The steps of a job. They run in the application's event loop, and may run again after a crash.

    `slots`: requests to the LLM that all replicas together have in flight. A step that fails because the
    store is unavailable runs again every `wait_s` seconds.
    """

    jobs: SqlJobs
    drawer: Drawer
    finishers: Mapping[JobKind, Finish]
    slots: int
    wait_s: float = 1.0
    _one_finish: asyncio.Lock = field(default_factory=asyncio.Lock)  # vectors of one job in memory

    async def run(self, name: str, job_id: str, *args: Any) -> dict[str, Any]:
        """Return {"value": the step's result}, or {"ended": True} for a job that has ended.

        An error of the step ends the job.
        """
        step = self.drawer.draw if name == "draw" else getattr(self, name)
        try:
            return {"value": await once_stored(partial(step, job_id, *args), self.wait_s)}
        except JobEndedError:
            return {"ended": True}
        except EigencalError as error:
            # Details after SERVER_MESSAGE are the LLM server's words, which may repeat the prompt.
            logger.warning(
                "job %s failed: %s: %s", job_id, error.code, error.detail.partition(SERVER_MESSAGE)[0]
            )
            reason = JobError(code=error.code, detail=for_owner(error))
        except Exception:
            logger.exception("job %s failed", job_id)
            reason = INTERNAL
        with contextlib.suppress(JobEndedError):
            try:
                await once_stored(partial(self.jobs.fail, job_id, reason), self.wait_s)
            except Exception:  # the database cannot store the detail
                await once_stored(partial(self.jobs.fail, job_id, INTERNAL), self.wait_s)
        return {"ended": True}

    async def plan(self, job_id: str) -> list[list[int]]:
        """Set the job running; return the lines of the rows that lack answers, in chunks."""
        await self.jobs.begin(job_id)
        lines = await self.jobs.missing_lines(job_id)
        if lines:
            total = (await self.jobs.running(job_id)).num_rows
            await self.jobs.stage(job_id, "sampling", total, total - len(lines))
        return self._in_chunks(lines)

    async def plan_again(self, job_id: str) -> list[list[int]]:
        """Return the lines of the rows that the LLM server refused, in chunks.

        Servers that restart or are overloaded refuse good requests for a while: these rows are asked for
        once more.
        """
        return self._in_chunks(await self.jobs.refused_lines(job_id))

    def _in_chunks(self, lines: list[int]) -> list[list[int]]:
        size = min(MAX_CHUNK, -(-len(lines) // (CHUNKS_PER_SLOT * self.slots)) or 1)
        return [lines[begin : begin + size] for begin in range(0, len(lines), size)]

    async def finish(self, job_id: str) -> None:
        """Embed, fit, report and end the job."""
        async with self._one_finish:
            job = await self.jobs.running(job_id)
            await self.finishers[job.options.kind](job)


async def run_job(job_id: str, engine: "DbosEngine") -> None:
    """Run a job to its end."""
    logger.info("job %s runs on this replica", job_id)
    with contextlib.suppress(JobEndedError):
        await engine.draw(job_id, await engine.step("plan", job_id))
        await engine.draw(job_id, await engine.step("plan_again", job_id))
        await engine.step("finish", job_id)


async def draw_chunk(job_id: str, lines: Sequence[int], engine: "DbosEngine") -> None:
    """Draw rows one after the other."""
    with contextlib.suppress(JobEndedError):
        for line in lines:
            await engine.step("draw", job_id, line)


# Raise it when stored workflows could not go on with new code. Their jobs then begin new workflows.
WORKFLOW_VERSION = "6"
SCHEMA = "eigencal_jobs"
POLL_S = 0.5  # of DBOS's queues while it runs
STOP_AFTER_S = 30.0  # without an open job
OWNED = "The SQLite file is another process's: several replicas need PostgreSQL (EIGENCAL_DATABASE_URL)."
_ENQUEUED, _PENDING = "ENQUEUED", "PENDING"


def queue_of(setup_key: str, of: str = "jobs") -> str:
    """Return the name of the queue for the jobs of these settings, or for their chunks of rows.

    The name holds the version: chunks of an earlier version, which nobody runs, must not count as running.
    """
    return f"eigencal-{of}-{WORKFLOW_VERSION}-{setup_key}"


class _Current:
    """The engine of this process, for workflows: DBOS runs plain functions, and one DBOS in a process."""

    engine: "DbosEngine | None" = None
    job: Any = None
    chunk: Any = None


async def _run_job(job_id: str) -> None:
    await _work(partial(run_job, job_id))


async def _run_chunk(job_id: str, lines: list[int]) -> None:
    await _work(partial(draw_chunk, job_id, lines))


async def _work(work: Callable[["DbosEngine"], Awaitable[None]]) -> None:
    """Do the work of the current workflow.

    A cancelled task leaves its workflow pending, without a traceback from DBOS: `reconcile` resumes it.
    """
    from dbos import DBOS, error

    engine, workflow_id = _Current.engine, DBOS.workflow_id
    if engine is None or workflow_id is None:  # the service stops
        raise asyncio.CancelledError
    engine.running.add(workflow_id)
    try:
        await work(engine)
    except (error.DBOSWorkflowCancelledError, error.DBOSWorkflowConflictIDError):
        raise asyncio.CancelledError from None  # cancelled, or taken over by a peer
    except (SQLAlchemyError, OSError) as failure:
        cause = getattr(failure, "orig", None) or failure
        logger.warning("job %s is interrupted: %s", _job_of(workflow_id), type(cause).__name__)
        raise asyncio.CancelledError from None  # DBOS could not store a step: no room, or read-only
    finally:
        engine.running.discard(workflow_id)


class DbosEngine:
    """Runs jobs in the event loop that called `start`.

    `setup_keys`: the settings whose jobs run here. `url`: the database where DBOS keeps its tables. Peers
    take over the workflows of a replica once its session with Postgres has ended or was silent for `lease_s`.
    """

    def __init__(self, url: URL, *, setup_keys: Sequence[str], lease_s: float = 10.0) -> None:
        self._url = sync_url(url)
        self._presence: Presence | None = None
        # A SQLite file has one process, which resumes its own workflows.
        self.executor_id = "only"
        if url.get_backend_name() == "postgresql":
            from service.jobs import presence  # with 7 MiB of psycopg

            self.executor_id = f"{socket.gethostname()}-{secrets.token_hex(4)}"
            self._presence = presence.Presence(self._url, self.executor_id, lease_s=lease_s)
            logger.info("this is replica %s", self.executor_id)
        self._ownership: IO[str] | None = None
        self._setup_keys = setup_keys
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_launched = False
        self._last_open = 0.0  # when a job was last open, by time.monotonic()
        self.running: set[str] = set()  # ids of the workflows whose tasks run in this process
        self._stray: set[str] = set()  # ids of those that were pending here without a task at the last look

    async def start(self, steps: JobSteps) -> None:
        """Launch DBOS, which resumes the workflows of this executor.

        Raises StoreUnavailable, also if another process has the SQLite file, and RuntimeError if another
        engine runs.
        """
        if _Current.engine is not None:
            raise RuntimeError("only one engine of durable jobs can run in a process")
        self._loop, self.steps = asyncio.get_running_loop(), steps
        _Current.engine = self
        try:
            if self._presence is None:
                self._ownership = _own(Path(str(self._url.database)))
            await self._launch()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Interrupt running workflows and stop DBOS; the workflows stay pending. Idempotent."""
        if _Current.engine is not self:
            return
        _Current.engine = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._shut_down()
        finally:
            if self._ownership is not None:
                self._ownership.close()

    async def _launch(self) -> None:
        if self._presence is not None:
            await self._presence.start()  # first: peers take over what runs on a replica without a lock
        self._is_launched, self._last_open = True, time.monotonic()
        try:
            with translated():
                await asyncio.to_thread(self._launch_dbos)
        except BaseException:
            await self._shut_down()
            raise

    async def _shut_down(self) -> None:
        from dbos import DBOS

        self._is_launched = False
        try:
            await asyncio.to_thread(DBOS.destroy)
        finally:  # last: peers take over at once
            if self._presence is not None:
                await self._presence.stop()

    def _launch_dbos(self) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        if _Current.job is None:
            # Registered once a process. Without a bound on recoveries DBOS never gives a job up.
            _Current.job = DBOS.workflow(name="job", max_recovery_attempts=None)(_run_job)
            _Current.chunk = DBOS.workflow(name="chunk", max_recovery_attempts=None)(_run_chunk)
        config: DBOSConfig = {
            "name": "eigencal",
            "system_database_url": jobs_url(self._url),
            "dbos_system_schema": SCHEMA,
            # The default is a hash of DBOS's version and the code: a release would orphan older workflows.
            "application_version": WORKFLOW_VERSION,
            "executor_id": self.executor_id,
            "serializer": DBOSPortableJSONSerializer(),  # unlike pickle, it runs no stored code
            "sys_db_idle_transaction_timeout_sec": IDLE_S,
            "notification_listener_polling_interval_sec": 0.1,  # on SQLite a stop waits for it
            "enable_otlp": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        jobs, chunks = [queue_of(key) for key in self._setup_keys], queue_of(self._setup_keys[0], "rows")
        # Before the launch, as DBOS demands: otherwise jobs of other settings would run here.
        DBOS.listen_queues([*jobs, chunks])
        DBOS.launch()
        register = partial(DBOS.register_queue, polling_interval_sec=POLL_S, on_conflict="always_update")
        for queue in jobs:
            register(queue, worker_concurrency=1)
        register(chunks, global_concurrency=self.steps.slots)

    async def step(self, name: str, job_id: str, *args: Any) -> Any:
        """Return the result of a step. DBOS runs it once, unless a crash comes before the step is stored.

        Raises JobEndedError.
        """
        from dbos import DBOS

        options: Any = {"name": name, "preemptible": True}
        result = await DBOS.run_step_async(options, self._in_application, name, job_id, *args)
        if "ended" in result:
            raise JobEndedError(job_id)
        return result["value"]

    async def _in_application(self, name: str, job_id: str, *args: Any) -> dict[str, Any]:
        """Run a step in the application's loop, from DBOS's own loop; a cancellation is passed on."""
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

        queue = queue_of(self._setup_keys[0], "rows")
        handles = [
            await DBOS.enqueue_workflow_async(queue, _Current.chunk, job_id, chunk) for chunk in chunks
        ]
        for handle in handles:
            await handle.get_result(polling_interval_sec=POLL_S)

    async def reconcile(self, open_jobs: Mapping[str, str]) -> None:
        """See that each of these open jobs, its setup key by its id, has a workflow that waits or runs.

        A crash may come between a job and its workflow, an outcome may not have been stored, and a replica
        may have died.
        """
        if open_jobs:
            self._last_open = time.monotonic()
        elif self._is_launched and time.monotonic() - self._last_open > STOP_AFTER_S:
            await self._shut_down()
        if not open_jobs:
            return
        if not self._is_launched:
            await self._launch()
        pending = await asyncio.to_thread(_listed, status=[_PENDING])
        stray = [one for one in pending if self._is_own(one) and one.workflow_id not in self.running]
        # Twice in a row: DBOS calls a workflow pending a moment before its task begins.
        lost = [workflow for workflow in stray if workflow.workflow_id in self._stray]
        self._stray = {workflow.workflow_id for workflow in stray}
        if lost:
            logger.warning("jobs go on that could not be stored: %s", _names(lost))
            await asyncio.to_thread(_resume, lost)
        if self._presence is not None:
            for executor_id in {workflow.executor_id for workflow in pending if not self._is_own(workflow)}:
                try:
                    await self._take_over(executor_id, self._presence)
                except Exception as error:  # the other jobs go on
                    logger.warning("replica %s cannot be looked up: %s", executor_id, type(error).__name__)
        unfinished = await asyncio.to_thread(_listed, status=[_ENQUEUED, _PENDING], name="job")
        for job_id in open_jobs.keys() - {_job_of(workflow.workflow_id) for workflow in unfinished}:
            await asyncio.to_thread(_enqueue, job_id, queue_of(open_jobs[job_id]))

    def _is_own(self, workflow: Any) -> bool:
        return bool(workflow.executor_id == self.executor_id)

    async def _take_over(self, executor_id: str, presence: "Presence") -> None:
        async with presence.instead_of(executor_id) as is_dead:
            if not is_dead:
                return
            # Listed anew: a peer that held the lock before may have resumed the workflows.
            if workflows := await asyncio.to_thread(_listed, status=[_PENDING], executor_id=executor_id):
                logger.warning("replica %s is dead: its jobs go on: %s", executor_id, _names(workflows))
                await asyncio.to_thread(_resume, workflows)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job's workflows: DBOS interrupts their steps within a second or two, on any replica."""
        from dbos import DBOS

        if not self._is_launched:
            return
        unfinished = await asyncio.to_thread(_listed, workflow_id_prefix=job_id, status=[_ENQUEUED, _PENDING])
        await asyncio.to_thread(DBOS.cancel_workflows, [workflow.workflow_id for workflow in unfinished])


def _own(path: Path) -> IO[str]:
    """Return a locked file that shows that the SQLite file is this process's, until it is closed.

    Two processes would each resume the other's workflows. Raises StoreUnavailable.
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
    """Return workflows of this version, the only ones that can run here."""
    from dbos import DBOS

    return DBOS.list_workflows(load_input=False, load_output=False, app_version=WORKFLOW_VERSION, **which)


def _resume(workflows: Sequence[Any]) -> None:
    """Put workflows back into their queues."""
    from dbos import DBOS

    for workflow in workflows:
        DBOS.resume_workflow(workflow.workflow_id, queue_name=workflow.queue_name)


def _job_of(workflow_id: str) -> str:
    """Return the id of a workflow's job: workflow ids begin with it, and ids of jobs hold no dash."""
    return workflow_id.partition("-")[0]


def _names(workflows: Sequence[Any]) -> str:
    return ", ".join(sorted({_job_of(workflow.workflow_id) for workflow in workflows}))


def _enqueue(job_id: str, queue: str) -> None:
    """Begin the job's next workflow. Replicas that do so at once give it the same id: it begins once."""
    from dbos import DBOS, SetWorkflowID

    earlier = DBOS.list_workflows(workflow_id_prefix=job_id, name="job", load_input=False, load_output=False)
    is_open = (workflow.status in (_ENQUEUED, _PENDING) for workflow in earlier)
    is_current = (workflow.app_version == WORKFLOW_VERSION for workflow in earlier)
    if not any(open_ and current for open_, current in zip(is_open, is_current, strict=True)):
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

    Every `beat_s` seconds, and when a job is new, the engine is told which jobs are open. Callers see the
    progress of a job every `poll_s` seconds.

    A job is bound to the settings under which it was posted. Jobs of other settings are left to a service
    with those settings.
    """

    def __init__(
        self,
        store: SqlJobs,
        steps: JobSteps,
        engine: DbosEngine,
        *,
        beat_s: float = 2.0,
        poll_s: float = 0.3,
    ) -> None:
        self.store = store
        self._steps = steps
        self._engine = engine
        self._beat_s = beat_s
        self._poll_s = poll_s
        self._reconciler: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Begin to run jobs: those left by this replica at once, those of dead peers after a while."""
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
        """Store the rows and a job for them, start it; return it and whether it is new: `SqlJobs.submit`."""
        job, created = await self.store.submit(
            rows, options, idempotency_key, self._steps.drawer.generation_key
        )
        if created:
            logger.info("job %s accepted: %s", job.id, job.kind)
            self._news.set()
        return job, created

    async def retry(self, job_id: str) -> Job | None:
        """Let a job go on with the answers it has, and return it, or its successor: `SqlJobs.retry`."""
        return await self._queued(await self.store.retry(job_id))

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> Job | None:
        """Start a job on the rows of a succeeded job, with corrected verdicts: `SqlJobs.correct`."""
        return await self._queued(await self.store.correct(job_id, corrections, options))

    async def _queued(self, job_id: str | None) -> Job | None:
        if job_id is None:
            return None
        self._news.set()
        return await self.store.get(job_id)

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job, forget its rows and return it; None if there is no such job.

        A failed job can be given up like this, too. Its work, here or on a peer, stops within a second or
        two. Raises Conflict when it has succeeded; cancelling twice is no error.
        """
        job = await self.store.cancel(job_id)
        if job is not None:
            logger.info("job %s cancelled", job_id)
            try:
                async with asyncio.timeout(CANCEL_S):
                    await self._engine.cancel(job_id)
            except Exception as error:  # the store takes no more writes of this job in any case
                logger.warning("the job engine failed: %s", type(error).__name__)
        return job

    async def events(self, job_id: str) -> AsyncGenerator[Job]:
        """Yield the job now and after each change, ending with its final state; nothing if unknown.

        Store outages are waited for.
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

    async def _reconciling(self) -> None:
        while True:
            self._news.clear()  # before the look: a job that comes during it is looked at again
            try:
                await self._engine.reconcile(await self.store.open_jobs())
            except StoreUnavailable:
                pass  # it was logged; the next round tries again
            except Exception as error:
                logger.warning("the jobs could not be looked at: %s", type(error).__name__)
            # Not `wait_for`: Python 3.11's swallows a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._news.wait()
