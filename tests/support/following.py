"""Jobs followed to their end by polling."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx

from service.jobs.model import Job
from service.jobs.runner import DurableJobs

POLL_S = 0.02
PATIENCE_S = 300.0


async def states(jobs: DurableJobs, job_id: str) -> AsyncIterator[Job]:
    """Yield the job now and after each change, until it has ended; nothing for an unknown job."""
    last: Job | None = None
    while (job := await jobs.store.get(job_id)) is not None:
        if job != last:
            yield job
        if job.state not in ("queued", "running"):
            return
        last = job
        await asyncio.sleep(POLL_S)


async def followed(http: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """Wait until a job has ended, and return it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            job: dict[str, Any] = (await http.get(f"/jobs/{job_id}")).raise_for_status().json()
            if job["state"] not in ("queued", "running"):
                return job
            await asyncio.sleep(POLL_S)
