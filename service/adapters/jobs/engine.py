"""The engine of jobs: the port, and DBOS behind it.

DBOS decides who runs which job: each job is a workflow of one step in the queue of its lane, kept in a
database of DBOS's own. It starts, spreads, limits and cancels them, and takes up at its start what this
executor left. That a peer has died it cannot know: who lives, `settle` is told.

DBOS runs workflows in a thread of its own; the jobs run in the application's event loop, where the LLM and
the embedder live.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import make_url

from service.adapters.jobs import workflows
from service.adapters.store.database import IDLE_S, translated
from service.adapters.store.location import DatabaseFile
from service.domain.errors import StoreUnavailable

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
        self._queues = [workflows.queue_of(lane) for lane in lanes]
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
            _Current.workflow = DBOS.workflow(name=workflows.NAME, max_recovery_attempts=None)(_workflow)
        config: DBOSConfig = {
            "name": "eigencal",
            "system_database_url": self._url,
            "dbos_system_schema": SCHEMA,
            # Else a hash of DBOS's version and of the code: a release would orphan the workflows of the last.
            "application_version": workflows.WORKFLOW_VERSION,
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
            await asyncio.to_thread(workflows.settle, jobs, living, _Current.workflow)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job's workflows: DBOS breaks off the step within a second or two, on any replica."""
        await asyncio.to_thread(workflows.cancel, job_id)

    async def check(self) -> None:
        """Return unless the file that DBOS works with is gone; then raise StoreUnavailable."""
        if self._file is not None and self._file.lost():
            raise StoreUnavailable("The file of the job engine is gone or was replaced.", retry_after_s=5.0)
