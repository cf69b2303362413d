"""What starts the parts of a job, again after a crash: the port."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

JobPart = Literal["draw", "finish"]
JOB_PARTS: tuple[JobPart, ...] = ("draw", "finish")
RunPart = Callable[[str, JobPart], Awaitable[None]]


class JobEngine(Protocol):
    """Runs the parts of each job one after the other, in the event loop that called `start`."""

    async def start(self, run: RunPart) -> None:
        """Begin to run jobs, those that an earlier process of this replica left included."""

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
