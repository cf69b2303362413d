"""An engine of jobs without a database."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping

from service.jobs.engine import RunJob


class TaskEngine:
    """Runs jobs as tasks, one of a lane at a time; forgets them when the process ends."""

    def __init__(self) -> None:
        self._run: RunJob | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lanes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, run: RunJob) -> None:
        """Begin to run jobs."""
        self._run = run

    async def stop(self) -> None:
        """Break all jobs off."""
        for job_id in list(self._tasks):
            await self.cancel(job_id)

    async def settle(self, jobs: Mapping[str, str], living: Collection[str]) -> None:
        """Run the jobs that are not being run."""
        for job_id, lane in jobs.items():
            task = self._tasks.get(job_id)
            if task is None or task.done():
                self._tasks[job_id] = asyncio.create_task(self._work(job_id, lane))

    async def cancel(self, job_id: str) -> None:
        """Break a job off."""
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def check(self) -> None:
        """Find nothing wrong."""

    async def _work(self, job_id: str, lane: str) -> None:
        if self._run is None:
            raise RuntimeError("the engine has not been started")
        async with self._lanes[lane]:
            await self._run(job_id)
