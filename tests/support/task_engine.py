"""A job engine without a database."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping

from service.jobs.runner import STEPS, JobSteps


class TaskEngine:
    """Runs jobs as tasks, one at a time per set-up. Jobs end with the process."""

    def __init__(self) -> None:
        self.steps: JobSteps | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, steps: JobSteps) -> None:
        """Start running jobs."""
        self.steps = steps

    async def stop(self) -> None:
        """Cancel all jobs."""
        for job_id in list(self._tasks):
            await self.cancel(job_id)

    async def reconcile(self, open_jobs: Mapping[str, str]) -> None:
        """Run the jobs that are not yet running."""
        for job_id, setup_key in open_jobs.items():
            task = self._tasks.get(job_id)
            if task is None or task.done():
                self._tasks[job_id] = asyncio.create_task(self._work(job_id, setup_key))

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _work(self, job_id: str, setup_key: str) -> None:
        assert self.steps is not None
        async with self._turns[setup_key]:
            for name in STEPS:
                if not await self.steps.run(name, job_id):
                    break
