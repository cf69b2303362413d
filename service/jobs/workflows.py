"""A job as workflows of DBOS: its drawing in chunks of rows on all replicas, then embedding, fit and report.

The job's own workflow waits in the queue of its settings, of which a replica takes one at a time. It puts the
rows that lack answers, in chunks, into a second queue, from which every replica of these settings takes. A
row is a step: DBOS refuses the step of a replica whose workflow was taken over, and so ends a run that was
frozen and wakes. What a step has done is in our own tables; DBOS keeps but how far it is.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from sqlalchemy.engine import URL

from service.errors import SERVER_MESSAGE, EigencalError, StoreUnavailable
from service.jobs.drawing import Drawer
from service.jobs.model import JobError, JobKind
from service.jobs.store import JobEndedError, RunningJob, SqlJobs
from service.jobs.waiting import Patience, for_owner
from service.store.database import IDLE_S, sync_url, translated

if TYPE_CHECKING:
    from service.jobs.presence import Presence

logger = logging.getLogger(__name__)

INTERNAL = JobError(code="internal", detail="The service failed at this job; its log tells more.")
# So many chunks for each request at once: the last ones of a job keep all busy, few as they are.
CHUNKS_PER_SLOT = 4
MAX_CHUNK = 32  # rows


# Does the rest of a kind of job with its answers and ends it; may be run again from its start after a crash.
Finish = Callable[[RunningJob], Awaitable[None]]


@dataclass(eq=False)
class JobSteps:
    """The steps of jobs, run in the application's event loop; each may be run again after a crash.

    `slots`: requests that a replica has under way at once; `all_slots`: all replicas together, None for any
    number. A store that fails is asked again every `wait_s`.
    """

    jobs: SqlJobs
    drawer: Drawer
    finishers: Mapping[JobKind, Finish]
    slots: int
    patience: Patience
    all_slots: int | None = None
    wait_s: float = 1.0
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)  # one job at a time has its vectors in memory

    async def run(self, name: str, job_id: str, *args: Any) -> dict[str, Any]:
        """Return the `value` of a step, or that the job has `ended`; an error ends it.

        While the store is what fails, the step is run again: a store that is down fails no job.
        """
        step = partial(getattr(self, name), job_id, *args)
        while True:
            try:
                return {"value": await step()}
            except StoreUnavailable:
                await asyncio.sleep(self.wait_s)
            except JobEndedError:
                return {"ended": True}
            except EigencalError as error:
                # Some details hold what the LLM server said of a row, which may repeat the prompt.
                detail = error.detail.partition(SERVER_MESSAGE)[0]
                logger.warning("job %s failed: %s: %s", job_id, error.code, detail)
                step = partial(self._fail, job_id, JobError(code=error.code, detail=for_owner(error)))
            except Exception:
                logger.exception("job %s failed", job_id)
                step = partial(self._fail, job_id, INTERNAL)

    async def _fail(self, job_id: str, error: JobError) -> NoReturn:
        await self.jobs.fail(job_id, error)
        raise JobEndedError(job_id)

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
        size = min(MAX_CHUNK, -(-len(lines) // (CHUNKS_PER_SLOT * (self.all_slots or self.slots))) or 1)
        return [lines[begin : begin + size] for begin in range(0, len(lines), size)]

    async def draw(self, job_id: str, line: int, final: bool) -> str | None:
        """Draw the answers of a row."""
        return await self.drawer.draw(job_id, line, final=final)

    async def note(self, job_id: str, text: str) -> None:
        """Say what the job waits for."""
        await self.jobs.note(job_id, text)

    async def finish(self, job_id: str) -> None:
        """Do the rest of the job."""
        async with self._one:
            job = await self.jobs.running(job_id)
            await self.finishers[job.options.kind](job)


async def run_job(job_id: str, engine: "DbosEngine", patience: Patience) -> None:
    """Run a job to its end."""
    with contextlib.suppress(JobEndedError):
        await engine.step("begin", job_id)
        await _draw_all(job_id, engine, patience)
        await engine.step("finish", job_id)


async def _draw_all(job_id: str, engine: "DbosEngine", patience: Patience) -> None:
    """Draw until every row has all of its answers, or was refused as often as it is asked again.

    No refusal (of a row too long, say) is final at once: the server may refuse all of them for a while.
    """
    for wait_s in (*patience.ask_again_s, None):
        chunks = await engine.step("missing", job_id)
        refusals = await engine.draw(job_id, chunks, final=wait_s is None)
        if not refusals or wait_s is None:
            return
        text = f"Waiting to ask again for rows that the LLM server refused, {len(refusals)}: {refusals[-1]}"
        await engine.step("note", job_id, text)
        await engine.sleep(wait_s)


async def draw_chunk(job_id: str, lines: Sequence[int], final: bool, engine: "DbosEngine") -> list[str]:
    """Draw rows one after the other; return why any were refused."""
    refusals = list[str]()
    with contextlib.suppress(JobEndedError):
        for line in lines:
            refusal = await engine.step("draw", job_id, line, final)
            if refusal is not None:
                refusals.append(refusal)
    return refusals


# DBOS runs workflows in a thread of its own; the steps run in the application's event loop, where the LLM and
# the embedder live.

# Raised when workflows of the old shape could not go on with the new code: `settle` begins them anew.
WORKFLOW_VERSION = "4"
SCHEMA = "eigencal_jobs"
_POLL_S = 0.5
OWNED = "The SQLite file is another process's: several replicas need PostgreSQL (EIGENCAL_DATABASE_URL)."
_WAITS, _RUNS = "ENQUEUED", "PENDING"  # as DBOS calls them


def queue_of(lane: str, of: str = "jobs") -> str:
    """Return the name of the queue of a lane's jobs, or of their chunks of rows."""
    return f"eigencal-{of}-{lane}"


class _Current:
    """DBOS is one per process and its workflows are plain functions: this is how they find their engine."""

    engine: "DbosEngine | None" = None
    job: Any = None
    chunk: Any = None


async def _run_job(job_id: str) -> None:
    await _ending_quietly(lambda engine: run_job(job_id, engine, engine.steps.patience))


async def _run_chunk(job_id: str, lines: list[int], final: bool) -> Any:
    return await _ending_quietly(lambda engine: draw_chunk(job_id, lines, final, engine))


async def _ending_quietly(work: Callable[["DbosEngine"], Awaitable[Any]]) -> Any:
    from dbos import error

    if _Current.engine is None:
        raise asyncio.CancelledError  # stopping: the workflow stays pending
    try:
        return await work(_Current.engine)
    except (error.DBOSWorkflowCancelledError, error.DBOSWorkflowConflictIDError):
        # Cancelled, or a peer's by now. DBOS would wait for its outcome and log a traceback.
        raise asyncio.CancelledError from None


class DbosEngine:
    """Runs jobs in the event loop that called `start`, and remembers which of their steps were done.

    `lanes`: of those the jobs are run here, one job of each at a time. `url`: of the database where DBOS
    keeps its tables. `replica_id`: unique among the replicas of one Postgres. A replica is dead, and its
    peers take its workflows over, when its session with Postgres has ended, or was silent for `lease_s`.
    """

    def __init__(self, url: URL, *, replica_id: str, lanes: Sequence[str], lease_s: float = 10.0) -> None:
        self._url = sync_url(url)
        self._replica_id = replica_id
        self._presence: Presence | None = None
        if url.get_backend_name() == "postgresql":  # a SQLite file has one process: no 7 MiB of psycopg
            from service.jobs import presence

            self._presence = presence.Presence(self._url, replica_id, lease_s=lease_s)
        self._ownership: IO[str] | None = None
        self._lanes = lanes
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def _executor_id(self) -> str:
        # One process alone has a SQLite file: under whatever name it comes back, it goes on with its jobs.
        return "only" if self._presence is None else self._replica_id

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
                await asyncio.to_thread(self._launch, steps.slots, steps.all_slots)
        except BaseException:
            # What DBOS has begun goes: it would refuse the next launch, when there may be room again.
            await self.stop()
            raise

    def _launch(self, slots: int, all_slots: int | None) -> None:
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
            "executor_id": self._executor_id,
            "serializer": DBOSPortableJSONSerializer(),  # not pickle, which runs code when it is read
            "sys_db_idle_transaction_timeout_sec": IDLE_S,  # as in our own tables
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
        register(chunks, worker_concurrency=slots, global_concurrency=all_slots)

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

    async def draw(self, job_id: str, chunks: list[list[int]], final: bool) -> list[str]:
        """Have all replicas draw the chunks; return all refusals."""
        from dbos import DBOS

        queue = queue_of(self._lanes[0], "rows")
        handles = [
            await DBOS.enqueue_workflow_async(queue, _Current.chunk, job_id, chunk, final) for chunk in chunks
        ]
        results = [await handle.get_result(polling_interval_sec=_POLL_S) for handle in handles]
        return [refusal for refusals in results for refusal in refusals]

    async def sleep(self, seconds: float) -> None:
        """Wait, over a restart, too."""
        from dbos import DBOS

        await DBOS.sleep_async(seconds)

    async def settle(self, ours: Mapping[str, str]) -> Collection[str]:
        """See that each of these open jobs, its lane by its id, waits or is run; return all that are run.

        What dead replicas ran is taken over.
        """
        if self._presence is not None:
            running = await asyncio.to_thread(_listed, status=[_RUNS])
            for executor_id in {one.executor_id for one in running} - {self._executor_id}:
                await self._take_over(executor_id, self._presence)
        unfinished = await asyncio.to_thread(_listed, status=[_WAITS, _RUNS], name="job")
        status_of = {_job_of(one): one.status for one in unfinished}
        for job_id in ours.keys() - status_of.keys():
            await asyncio.to_thread(_enqueue, job_id, queue_of(ours[job_id]))
        return {job_id for job_id, status in status_of.items() if status == _RUNS}

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
