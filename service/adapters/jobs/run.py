"""One run of a job: under a lease, to its end, whatever the store does meanwhile."""

import asyncio
import contextlib
import logging

from service.adapters.store import SqlJobs
from service.domain.calibrating.calibrator import Pipeline
from service.domain.errors import EigencalError, LLMError, StoreUnavailable
from service.domain.jobs.model import JobError
from service.domain.jobs.store import ClaimedJob, LeaseLostError

logger = logging.getLogger(__name__)

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
