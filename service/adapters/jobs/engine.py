"""What starts the parts of a job, again after a crash: a port, and a form of it without a database."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

Part = Literal["draw", "finish"]
PARTS: tuple[Part, ...] = ("draw", "finish")
RunPart = Callable[[str, Part], Awaitable[None]]


class JobEngine(Protocol):
    """Runs the parts of each job one after the other, in the event loop that called `start`."""

    async def start(self, run: RunPart) -> None:
        """Begin to run jobs, those of an earlier life of this replica included."""

    async def stop(self) -> None:
        """Stop; jobs under way are broken off and go on at the next start. Idempotent."""

    async def enqueue(self, job_id: str, lane: str) -> None:
        """Have a job run, here or on a peer that has the lane; jobs of a lane run one after the other."""

    async def retry(self, job_id: str, lane: str, epoch: int) -> None:
        """Have a job run that has failed. `epoch` tells how often it was claimed."""

    async def revive(self, job_id: str, lane: str, epoch: int) -> None:
        """Have a job run that nobody seems to run."""

    async def cancel(self, job_id: str) -> None:
        """Do not start the job again."""

    async def check(self) -> None:
        """Return when jobs can be started; raise StoreUnavailable when not."""


class TaskEngine:
    """Runs jobs as tasks, one of a lane at a time; forgets them when the process ends. For tests."""

    def __init__(self) -> None:
        self._run: RunPart | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lanes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, run: RunPart) -> None:
        """Begin to run jobs."""
        self._run = run

    async def stop(self) -> None:
        """Break all jobs off."""
        for job_id in list(self._tasks):
            await self.cancel(job_id)

    async def enqueue(self, job_id: str, lane: str) -> None:
        """Run a job."""
        self._tasks[job_id] = asyncio.create_task(self._work(job_id, lane))

    async def retry(self, job_id: str, lane: str, epoch: int) -> None:
        """Run a job again."""
        await self.enqueue(job_id, lane)

    async def revive(self, job_id: str, lane: str, epoch: int) -> None:
        """Run a job unless it is being run."""
        task = self._tasks.get(job_id)
        if task is None or task.done():
            await self.enqueue(job_id, lane)

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
            for part in PARTS:
                await self._run(job_id, part)
