"""The workflows of jobs in DBOS: listed, enqueued, handed over, cancelled. All of it blocks.

The id of a workflow is that of its job and a number: a job may have had several, one of which is unfinished.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import make_url

from service.calibration.calibrator import Pipeline
from service.errors import EigencalError, LLMError, StoreUnavailable
from service.jobs.model import JobError
from service.jobs.store import ClaimedJob, LeaseLostError
from service.store.database import IDLE_S, translated
from service.store.jobs import SqlJobs
from service.store.location import DatabaseFile

logger = logging.getLogger(__name__)

# Raised when workflows of the old shape could not go on with the new code: `settle` begins them anew.
WORKFLOW_VERSION = "2"
NAME = "job"
_WAITS, _RUNS = "ENQUEUED", "PENDING"  # as DBOS calls them


def queue_of(lane: str) -> str:
    """Return the name of the queue of a lane."""
    return f"eigencal-jobs-{lane}"


def _listed(**which: Any) -> list[Any]:
    from dbos import DBOS

    return DBOS.list_workflows(load_input=False, load_output=False, **which)


def _unfinished(**which: Any) -> list[Any]:
    """Return workflows that wait or run. Those of another version no one here can run."""
    return _listed(status=[_WAITS, _RUNS], app_version=WORKFLOW_VERSION, name=NAME, **which)


def settle(jobs: Mapping[str, str], living: Collection[str], function: Any) -> None:
    """See that each job, by id, has a workflow that waits in its lane or is run by a living executor.

    function: the workflow's, for a job that has none.
    """
    of_job = defaultdict(list)
    for workflow in _unfinished():
        of_job[workflow.workflow_id.partition("-")[0]].append(workflow)  # ids of jobs hold no dash
    for job_id, lane in jobs.items():
        if job_id not in of_job:
            _enqueue(job_id, queue_of(lane), function)
        for workflow in of_job[job_id]:
            _keep_going(workflow, job_id, queue_of(lane), living)


def _keep_going(workflow: Any, job_id: str, queue: str, living: Collection[str]) -> None:
    from dbos import DBOS

    runs = workflow.status == _RUNS
    if workflow.executor_id in living if runs else workflow.queue_name == queue:
        return
    if runs:
        logger.warning("job %s: nobody seems to run it, it is taken over", job_id)
    DBOS.resume_workflow(workflow.workflow_id, queue_name=queue)


def _enqueue(job_id: str, queue: str, function: Any) -> None:
    """Begin the job's next workflow. Peers that do so at once give it the same id: it begins once."""
    from dbos import DBOS, SetWorkflowID

    earlier = _listed(workflow_id_prefix=job_id)
    if not any(one.status in (_WAITS, _RUNS) and one.app_version == WORKFLOW_VERSION for one in earlier):
        with SetWorkflowID(f"{job_id}-{len(earlier)}"):
            DBOS.enqueue_workflow(queue, function, job_id)


def cancel(job_id: str) -> None:
    """Cancel the workflows of a job: DBOS breaks off their steps, wherever they run."""
    from dbos import DBOS

    DBOS.cancel_workflows([one.workflow_id for one in _unfinished(workflow_id_prefix=job_id)])


# One run of a job: under a lease, to its end, whatever the store does meanwhile.

INTERNAL = JobError("internal", "The service failed at this job; its log tells more.")


class JobRunner:
    """Runs jobs for `owner`; called by the engine, again after a crash.

    Claiming a job raises its epoch: a former owner that was only frozen stops at its next write. A store that
    fails is asked again every `wait_s`.
    """

    def __init__(self, store: SqlJobs, pipeline: Pipeline, *, owner: str, wait_s: float) -> None:
        self._store = store
        self._pipeline = pipeline
        self._owner = owner
        self._wait_s = wait_s
        self._keys = store.setup.keys()

    async def __call__(self, job_id: str) -> None:
        """Run a job to its end, or until its lease is lost."""
        try:
            claimed = await self._claim(job_id)
            if claimed is not None:
                begins = "begins" if claimed.lease.epoch == 1 else "goes on"
                logger.info("job %s %s: claim %d by %s", job_id, begins, claimed.lease.epoch, self._owner)
                await self._work(claimed)
        except LeaseLostError:
            logger.info("job %s is run elsewhere or was cancelled", job_id)

    async def _claim(self, job_id: str) -> ClaimedJob | None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await self._store.claim(job_id, self._owner, keys=self._keys)
            await asyncio.sleep(self._wait_s)

    async def _work(self, job: ClaimedJob) -> None:
        """Run the job again for as long as the store is what fails it; any other error ends it.

        It waits until the store takes writes again: what was drawn before that could not be kept.
        """
        while True:
            try:
                return await self._outcome(job)
            except StoreUnavailable:
                await self._until_well()

    async def _until_well(self) -> None:
        while True:
            await asyncio.sleep(self._wait_s)
            with contextlib.suppress(StoreUnavailable):
                return await self._store.check()

    async def _outcome(self, job: ClaimedJob) -> None:
        try:
            await self._pipeline.draw(job)
            await self._pipeline.finish(job)
        # Before EigencalError, which StoreUnavailable is: a store that is down fails no job.
        except (StoreUnavailable, LeaseLostError):
            raise
        except EigencalError as error:
            told = error.told if isinstance(error, LLMError) else error.detail
            await self._store.fail(job.lease, JobError(error.code, told))
            said = error.extra.get("llm_message")
            llm = f" The LLM server said: {said!r}" if said else ""
            logger.warning("job %s failed: %s: %s%s", job.lease.job_id, error.code, error.detail, llm)
        except Exception:
            logger.exception("job %s failed", job.lease.job_id)
            await self._store.fail(job.lease, INTERNAL)


# The engine of jobs: the port, and DBOS behind it.
#
# DBOS decides who runs which job: each job is a workflow of one step in the queue of its lane, kept in a
# database of DBOS's own. It starts, spreads, limits and cancels them, and takes up at its start what this
# executor left. That a peer has died it cannot know: who lives, `settle` is told.
#
# DBOS runs workflows in a thread of its own; the jobs run in the application's event loop, where the LLM and
# the embedder live.

RunJob = Callable[[str], Awaitable[None]]


class JobEngine(Protocol):
    """Runs jobs in the event loop that called `start`, those of a lane one after the other."""

    async def start(self, run: RunJob) -> None:
        """Begin to run jobs, those that an earlier process of this replica left included."""

    async def stop(self) -> None:
        """Stop; jobs under way are broken off and go on at the next start. Idempotent."""

    async def settle(self, jobs: Mapping[str, str], living: Collection[str]) -> None:
        """See that each of these open jobs, by id, waits in its lane or is run by a living replica."""

    async def cancel(self, job_id: str) -> None:
        """Break the job off where it runs, and do not start it again."""

    async def check(self) -> None:
        """Return when jobs can be started; raise StoreUnavailable when not."""


SCHEMA = "eigencal_jobs"
_POLL_S = 0.5


class _Current:
    """DBOS is one per process and its workflows are plain functions: this is how they find their engine."""

    engine: "DbosEngine | None" = None
    workflow: Any = None


async def _workflow(job_id: str) -> None:
    from dbos import DBOS, error

    engine = _Current.engine
    if engine is None:
        raise asyncio.CancelledError  # stopping: the workflow stays pending
    try:
        await DBOS.run_step_async({"name": "run", "preemptible": True}, engine.call, job_id)
    except (error.DBOSWorkflowCancelledError, error.DBOSWorkflowConflictIDError):
        # Cancelled, or a peer's by now. DBOS would wait for its outcome and log a traceback.
        raise asyncio.CancelledError from None


class DbosEngine:
    """Implements `JobEngine` on DBOS. `executor_id`: stable, and unique among replicas of one database.

    Each lane is a queue. Those in `lanes` are run here, one job of each at a time; others may be put into.
    """

    def __init__(self, url: str, *, executor_id: str, lanes: Sequence[str]) -> None:
        self._url = url
        self._executor_id = executor_id
        path = make_url(url).database if url.startswith("sqlite") else None
        self._file = None if path is None else DatabaseFile(path)
        self._queues = [queue_of(lane) for lane in lanes]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: RunJob | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, run: RunJob) -> None:
        """Launch DBOS, which takes up what this executor left.

        Raises StoreUnavailable, and RuntimeError if another engine runs.
        """
        if _Current.engine is not None:
            raise RuntimeError("only one engine of durable jobs can run in a process")
        self._loop, self._run = asyncio.get_running_loop(), run
        _Current.engine = self
        try:
            with translated():
                await asyncio.to_thread(self._launch)
                if self._file is not None:
                    self._file.opened()
        except BaseException:
            # What DBOS has begun goes: it would refuse the next launch, when there may be room again.
            await self.stop()
            raise

    def _launch(self) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        if _Current.workflow is None:
            # Registered once a process; no bound on recoveries, after which DBOS would give a job up.
            _Current.workflow = DBOS.workflow(name=NAME, max_recovery_attempts=None)(_workflow)
        config: DBOSConfig = {
            "name": "eigencal",
            "system_database_url": self._url,
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
        # Before the launch, as DBOS demands: else jobs of other settings would be taken, too.
        DBOS.listen_queues(self._queues)
        DBOS.launch()
        for queue in self._queues:
            DBOS.register_queue(
                queue, worker_concurrency=1, polling_interval_sec=_POLL_S, on_conflict="always_update"
            )

    async def stop(self) -> None:
        """Break off what runs and stop DBOS; the workflows stay pending. Idempotent."""
        from dbos import DBOS

        if _Current.engine is not self:
            return
        _Current.engine = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(DBOS.destroy)

    async def call(self, job_id: str) -> None:
        """Run a job in the application's loop; called in DBOS's. Cancelled there, it is cancelled here."""
        if self._loop is None or self._run is None:
            raise RuntimeError("the engine has not been started")
        running = asyncio.run_coroutine_threadsafe(self._tracked(self._run(job_id)), self._loop)
        await asyncio.wrap_future(running)

    async def _tracked(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await task

    async def settle(self, jobs: Mapping[str, str], living: Collection[str]) -> None:
        """Enqueue a job without a workflow; hand over one that a dead executor ran.

        So, too, one that waits in a queue that is not its lane's. DBOS refuses what the dead still writes.
        """
        if jobs:
            await asyncio.to_thread(settle, jobs, living, _Current.workflow)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job's workflows: DBOS breaks off the step within a second or two, on any replica."""
        await asyncio.to_thread(cancel, job_id)

    async def check(self) -> None:
        """Return unless the file that DBOS works with is gone; then raise StoreUnavailable."""
        if self._file is not None and self._file.lost():
            raise StoreUnavailable("The file of the job engine is gone or was replaced.", retry_after_s=5.0)
