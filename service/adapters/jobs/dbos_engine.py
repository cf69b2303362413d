"""DBOS as the engine of jobs: each job is a workflow whose parts are steps, kept in a database of DBOS's own.

DBOS runs workflows in a thread of its own; the parts themselves run in the application's event loop, where
the LLM and the embedder live. Killed at any moment, the workflows of this executor go on when it starts
again. Those of another executor go on here once `revive` hands them over: DBOS refuses what the former owner
writes.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import make_url

from service.adapters.jobs.engine import JOB_PARTS, JobPart, RunPart
from service.adapters.store.database import translated
from service.adapters.store.file import DatabaseFile
from service.domain.errors import StoreUnavailable

logger = logging.getLogger(__name__)

# Raised only when workflows of the old shape could not go on with the new code.
WORKFLOW_VERSION = "1"
_QUEUE = "eigencal-jobs"  # and the lane
SCHEMA = "eigencal_jobs"
_POLL_S = 0.5


class _Current:
    """DBOS is one per process and its workflows are plain functions: this is how they find their engine."""

    engine: "DbosEngine | None" = None
    workflow: Any = None


async def _workflow(job_id: str) -> None:
    from dbos import DBOS

    for part in JOB_PARTS:
        await DBOS.run_step_async({"name": part}, _step, job_id, part)


async def _step(job_id: str, part: JobPart) -> None:
    engine = _Current.engine
    if engine is None:
        raise asyncio.CancelledError  # stopping: the workflow stays pending
    await engine.call(job_id, part)


class DbosEngine:
    """Implements `JobEngine` on DBOS. `executor_id`: stable, and unique among replicas of one database.

    Each lane is a queue. Those in `lanes` are run here, one job of each at a time; others may be put into.
    """

    def __init__(self, url: str, *, executor_id: str, lanes: Sequence[str]) -> None:
        self._url = url
        self._executor_id = executor_id
        path = make_url(url).database if url.startswith("sqlite") else None
        self._file = None if path is None else DatabaseFile(path)
        self._queues = [_queue(lane) for lane in lanes]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: RunPart | None = None

    async def start(self, run: RunPart) -> None:
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
            _Current.engine = None
            raise

    def _launch(self) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        if _Current.workflow is None:
            _Current.workflow = DBOS.workflow(name="calibrate", max_recovery_attempts=None)(_workflow)
        config: DBOSConfig = {
            "name": "eigencal",
            "system_database_url": self._url,
            "dbos_system_schema": SCHEMA,
            "application_version": WORKFLOW_VERSION,
            "executor_id": self._executor_id,
            "serializer": DBOSPortableJSONSerializer(),
            "enable_otlp": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.listen_queues(self._queues)
        DBOS.launch()
        for queue in self._queues:
            DBOS.register_queue(
                queue, worker_concurrency=1, polling_interval_sec=_POLL_S, on_conflict="always_update"
            )

    async def stop(self) -> None:
        """Stop DBOS; workflows under way stay pending. Idempotent."""
        from dbos import DBOS

        if _Current.engine is self:
            _Current.engine = None
            await asyncio.to_thread(DBOS.destroy)

    async def call(self, job_id: str, part: JobPart) -> None:
        """Run a part in the application's loop; called in DBOS's."""
        if self._loop is None or self._run is None:
            raise RuntimeError("the engine has not been started")

        async def run(function: RunPart) -> None:
            await function(job_id, part)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(self._run), self._loop))

    async def enqueue(self, job_id: str, lane: str) -> None:
        """Put the job's workflow in the queue that the replicas of this lane share."""
        await asyncio.to_thread(_enqueue, job_id, job_id, _queue(lane))

    async def retry(self, job_id: str, lane: str, epoch: int) -> None:
        """Begin a workflow anew; one that is still ending meets the job's lease."""
        await asyncio.to_thread(_enqueue, job_id, f"{job_id}.{epoch}", _queue(lane))

    async def revive(self, job_id: str, lane: str, epoch: int) -> None:
        """Take the workflow from whoever had it. One that has ended without ending the job is begun anew."""
        await asyncio.to_thread(_revive, job_id, epoch, _queue(lane))

    async def cancel(self, job_id: str) -> None:
        """Mark the workflow cancelled."""
        from dbos import DBOS

        await asyncio.to_thread(DBOS.cancel_workflow, job_id)

    async def check(self) -> None:
        """Return unless the file that DBOS works with is gone; then raise StoreUnavailable."""
        if self._file is not None and self._file.lost():
            raise StoreUnavailable("The file of the job engine is gone or was replaced.", retry_after_s=5.0)


def _queue(lane: str) -> str:
    return f"{_QUEUE}-{lane}"


def _enqueue(job_id: str, workflow_id: str, queue: str) -> None:
    from dbos import DBOS, SetWorkflowID

    with SetWorkflowID(workflow_id):
        DBOS.enqueue_workflow(queue, _Current.workflow, job_id)


def _revive(job_id: str, epoch: int, queue: str) -> None:
    from dbos import DBOS

    status = DBOS.get_workflow_status(job_id)
    if status is None or status.status not in ("ENQUEUED", "DELAYED"):  # those wait for their turn
        logger.warning("job %s: nobody seems to run it, it is taken over", job_id)
    if status is None:
        _enqueue(job_id, job_id, queue)
    elif status.status in ("ENQUEUED", "DELAYED"):
        if status.queue_name != queue:  # one that nobody here listens to
            DBOS.resume_workflow(job_id, queue_name=queue)
    elif status.status == "PENDING":
        DBOS.resume_workflow(job_id, queue_name=queue)
    else:
        _enqueue(job_id, f"{job_id}.{epoch}", queue)
