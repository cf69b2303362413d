"""Jobs as DBOS workflows, which go on after a crash.

A job is a workflow of two steps. It waits in the queue of its settings, and a replica runs one workflow of a
queue at a time. Answers are stored in `dev_rows` as they arrive, and a step that runs again continues with
the rows that lack answers. DBOS stores only which steps are done.

DBOS runs on a replica only while a job of the replica's settings is open. An idle replica only asks the store
for open jobs.
"""

import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, error
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from service.errors import StoreUnavailable
from service.jobs.presence import Presence
from service.jobs.runner import STEPS, JobSteps
from service.store.database import DAMAGED, IDLE_S, opening, sync_url, translated

logger = logging.getLogger(__name__)

# Raise this number if stored workflows cannot go on with new code. Their jobs then begin new workflows.
WORKFLOW_VERSION = "7"
SCHEMA = "eigencal_jobs"
POLL_S = 0.5  # interval at which DBOS looks at its queues
STOP_AFTER_S = 30.0  # DBOS stops after this time without an open job
STRAY_S = 1.0  # a pending workflow that has had no task for this long is resumed
OWNED = "The SQLite file is another process's: several replicas need PostgreSQL (EIGENCAL_DATABASE_URL)."
_ENQUEUED, _PENDING = "ENQUEUED", "PENDING"
# The engine of this process. DBOS is a singleton, and its workflows are plain functions without a `self`.
_current: "DbosEngine | None" = None
_dbos_lock = threading.Lock()


@DBOS.workflow(name="job", max_recovery_attempts=None)
async def _job(job_id: str) -> None:
    """Run a job to its end.

    An interrupted workflow raises CancelledError: DBOS then leaves it pending and logs no traceback, and
    `reconcile` resumes it.
    """
    engine, workflow_id = _current, DBOS.workflow_id
    if engine is None or workflow_id is None:  # the service is stopping
        raise asyncio.CancelledError
    if workflow_id in engine.running:  # resumed on a busy machine before its task began
        raise asyncio.CancelledError
    logger.info("job %s runs on this replica", job_id)
    engine.running.add(workflow_id)
    try:
        for name in STEPS:
            if not await engine.step(name, workflow_id):
                break
    except (error.DBOSWorkflowCancelledError, error.DBOSWorkflowConflictIDError):
        raise asyncio.CancelledError from None  # cancelled, or taken over by a peer
    except (SQLAlchemyError, OSError) as failure:  # DBOS cannot store a step: full disk, read-only
        cause = getattr(failure, "orig", None) or failure
        logger.warning("job %s is interrupted: %s", job_id, type(cause).__name__)
        raise asyncio.CancelledError from None
    finally:
        engine.running.discard(workflow_id)


class DbosEngine:
    """Runs jobs in the event loop that called `start`.

    `setup_keys`: the settings of the jobs that run here. `presence`: which replicas are alive; None for a
    SQLite file, which has one replica.
    """

    def __init__(self, url: URL, *, setup_keys: Sequence[str], presence: Presence | None = None) -> None:
        self._url = sync_url(url)
        # DBOS's tables: in a second SQLite file, or in the same Postgres under a schema of their own.
        self._jobs_url = self._url if presence else self._url.set(database=f"{url.database}.jobs")
        self._presence = presence
        # A SQLite file has one process. It resumes its workflows after a restart by the same id.
        self.executor_id = "only" if presence is None else f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._lock_file: IO[str] | None = None
        self._setup_keys = setup_keys
        self._tasks: dict[str, asyncio.Task[bool]] = {}  # running steps, by workflow id
        self._is_launched = False
        self._last_open = 0.0  # when a job was last open, by time.monotonic()
        self.running: set[str] = set()  # ids of workflows with a task in this process
        self._stray: dict[str, float] = {}  # since when a workflow lacks a task, in monotonic time

    async def start(self, steps: JobSteps) -> None:
        """Launch DBOS, which resumes the workflows of this executor.

        Raises StoreUnavailable, also if another process has the SQLite file, and RuntimeError if another
        engine runs.
        """
        global _current  # noqa: PLW0603 - see there
        if _current is not None:
            raise RuntimeError("only one engine of durable jobs can run in a process")
        self._loop, self.steps = asyncio.get_running_loop(), steps
        _current = self
        try:
            if self._presence is None:
                self._lock_file = _lock(Path(str(self._url.database)))
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        logger.info("this is replica %s", self.executor_id)

    async def stop(self) -> None:
        """Interrupt running workflows and stop DBOS; the workflows stay pending. Idempotent."""
        global _current  # noqa: PLW0603 - see there
        if _current is not self:
            return
        _current = None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._shut_down()
        finally:
            if self._lock_file is not None:
                self._lock_file.close()

    async def _launch(self) -> None:
        if self._presence is not None:
            await self._presence.beat(self.executor_id)  # first: peers take over from silent replicas
        self._is_launched, self._last_open = True, time.monotonic()
        try:
            with opening(self._jobs_url):
                await asyncio.to_thread(_one_at_a_time, self._launch_dbos)
        except BaseException:
            await self._shut_down()
            raise

    async def _shut_down(self) -> None:
        self._is_launched = False
        try:
            await asyncio.to_thread(_one_at_a_time, DBOS.destroy)
        finally:
            if self._presence is not None:
                await self._presence.leave(self.executor_id)  # last: peers take over at once

    def _launch_dbos(self) -> None:
        config: DBOSConfig = {
            "name": "eigencal",
            # str() of a URL has asterisks in place of the password.
            "system_database_url": self._jobs_url.render_as_string(hide_password=False),
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
        if self._presence is None:
            _require_intact(self._jobs_url)  # DBOS would log a traceback
        queues = [queue_of(key) for key in self._setup_keys]
        # Before the launch, as DBOS demands: otherwise jobs of other settings would run here.
        DBOS.listen_queues(queues)
        DBOS.launch()
        for queue in queues:
            DBOS.register_queue(
                queue, worker_concurrency=1, polling_interval_sec=POLL_S, on_conflict="always_update"
            )

    async def step(self, name: str, workflow_id: str) -> bool:
        """Run a step of the job; return False if the job has ended.

        DBOS runs it once, unless the process dies before the step is stored.
        """
        options: Any = {"name": name, "preemptible": True}
        return await DBOS.run_step_async(options, self._in_application, name, workflow_id)

    async def _in_application(self, name: str, workflow_id: str) -> bool:
        """Run a step in the application's loop, called in DBOS's own loop; a cancellation is passed on."""
        run = self._tracked(name, workflow_id)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run, self._loop))

    async def _tracked(self, name: str, workflow_id: str) -> bool:
        self._tasks[workflow_id] = task = asyncio.create_task(self.steps.run(name, _job_of(workflow_id)))
        try:
            return await task
        finally:
            if self._tasks.get(workflow_id) is task:
                del self._tasks[workflow_id]

    async def reconcile(self, open_jobs: Mapping[str, str]) -> None:
        """Make sure that each open job has a workflow that waits or runs. open_jobs: setup keys by job id.

        The process may have died before it enqueued a workflow, the outcome of a workflow may not have been
        stored, and a replica may have died.
        """
        if open_jobs:
            self._last_open = time.monotonic()
            if not self._is_launched:
                await self._launch()
        elif self._is_launched and time.monotonic() - self._last_open > STOP_AFTER_S:
            await self._shut_down()
        if not self._is_launched:
            return
        alive = None if self._presence is None else await self._presence.beat(self.executor_id)
        running = dict(self._tasks)
        try:
            pending = await asyncio.to_thread(_listed, status=[_PENDING])
        except SQLAlchemyError:
            if self._presence is None:
                # DBOS's file is gone or damaged: the next launch makes its tables.
                await self._shut_down()
            raise
        own = {workflow.workflow_id for workflow in pending if workflow.executor_id == self.executor_id}
        for workflow_id in running.keys() - own:  # cancelled, or taken over while this process was frozen
            if running[workflow_id].cancel():
                logger.warning("job %s is no longer this replica's", _job_of(workflow_id))
        # DBOS marks a workflow as pending shortly before its task begins.
        now = time.monotonic()
        self._stray = {id_: self._stray.get(id_, now) for id_ in own - self.running}
        stray = {id_ for id_, since in self._stray.items() if now - since >= STRAY_S}
        lost = [
            workflow
            for workflow in pending
            if workflow.workflow_id in stray or (alive is not None and workflow.executor_id not in alive)
        ]
        for workflow in lost:
            logger.warning("job %s is resumed: its run has ended", _job_of(workflow.workflow_id))
            await asyncio.to_thread(
                DBOS.resume_workflow, workflow.workflow_id, queue_name=workflow.queue_name
            )
        unfinished = await asyncio.to_thread(_listed, status=[_ENQUEUED, _PENDING], name="job")
        for job_id in open_jobs.keys() - {_job_of(workflow.workflow_id) for workflow in unfinished}:
            await asyncio.to_thread(_enqueue, job_id, queue_of(open_jobs[job_id]))

    async def cancel(self, job_id: str) -> None:
        """Cancel the job's workflows: DBOS interrupts their steps within a second or two, on any replica."""
        if self._is_launched:
            unfinished = await asyncio.to_thread(
                _listed, workflow_id_prefix=job_id, status=[_ENQUEUED, _PENDING]
            )
            await asyncio.to_thread(DBOS.cancel_workflows, [workflow.workflow_id for workflow in unfinished])


def _one_at_a_time(work: Callable[[], None]) -> None:
    """Launch or stop DBOS, after the thread that still does so: cancelling `to_thread` ends no thread."""
    with _dbos_lock:
        work()


def queue_of(setup_key: str) -> str:
    """Return the name of the queue of these settings.

    The name contains the version: DBOS would count workflows of an earlier version as running for ever.
    """
    return f"eigencal-jobs-{WORKFLOW_VERSION}-{setup_key}"


def _lock(path: Path) -> IO[str]:
    """Lock the SQLite file for this process. The lock is held until the returned file is closed.

    Two processes would resume each other's workflows. Raises StoreUnavailable.
    """
    import fcntl

    with translated():
        lock_file = path.resolve().with_name(f"{path.resolve().name}.owner").open("w")
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock_file.close()
        raise StoreUnavailable(OWNED) from None
    return lock_file


def _listed(**filters: Any) -> list[Any]:
    """Return workflows of this version. Workflows of other versions cannot run here."""
    return DBOS.list_workflows(load_input=False, load_output=False, app_version=WORKFLOW_VERSION, **filters)


def _job_of(workflow_id: str) -> str:
    """Return the job id that a workflow id begins with. Job ids contain no dash."""
    return workflow_id.partition("-")[0]


def _enqueue(job_id: str, queue: str) -> None:
    """Enqueue the job's next workflow. Replicas that enqueue it together use the same id, so it runs once."""
    earlier = DBOS.list_workflows(workflow_id_prefix=job_id, name="job", load_input=False, load_output=False)
    if not any(
        workflow.status in (_ENQUEUED, _PENDING) and workflow.app_version == WORKFLOW_VERSION
        for workflow in earlier
    ):
        with SetWorkflowID(f"{job_id}-{len(earlier)}"):
            DBOS.enqueue_workflow(queue, _job, job_id)


def _require_intact(url: URL) -> None:
    """Raise StoreUnavailable, or an error of the database, if a SQLite file is damaged."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() != "ok":
            raise StoreUnavailable(DAMAGED)
