"""A job engine without a database."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from service.jobs.runner import JobSteps, draw_chunk, run_job
from service.jobs.store import JobEndedError


class TaskEngine:
    """Runs jobs as tasks, one at a time per set-up. Jobs end with the process."""

    def __init__(self) -> None:
        self.steps: JobSteps | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, steps: JobSteps) -> None:
        """Start running jobs."""
        self.steps = steps
        self._slots = asyncio.Semaphore(steps.slots)

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
            await run_job(job_id, self)

    async def step(self, name: str, job_id: str, *args: Any) -> list[list[int]]:
        """Run a step."""
        assert self.steps is not None
        result = await self.steps.run(name, job_id, *args)
        if result is None:
            raise JobEndedError(job_id)
        return result

    async def draw(self, job_id: str, chunks: list[list[int]]) -> None:
        """Draw the chunks, as many at once as there are slots."""

        async def draw_limited(chunk: list[int]) -> None:
            async with self._slots:
                await draw_chunk(job_id, chunk, self)

        async with asyncio.TaskGroup() as group:  # a cancelled gather waits only for the first task
            for chunk in chunks:
                group.create_task(draw_limited(chunk))
