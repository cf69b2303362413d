"""Watching jobs: those who watch the same job in this process share one poller."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from service.domain.jobs.model import Job

Get = Callable[[str], Awaitable[Job | None]]


class JobWatch:
    """Asks for a job every `poll_s` from the first watcher's coming to the last one's going or its end."""

    def __init__(self, get: Get, poll_s: float) -> None:
        self._get = get
        self._poll_s = poll_s
        self._polls: dict[str, _Poll] = {}

    async def states(self, job_id: str) -> AsyncGenerator[Job, None]:
        """Yield the job now and whenever it has changed, ending with its final state; nothing if unknown.

        A watcher who is slow holds up no other: it misses states, but never the last one. Raises what asking
        raised; all who watch the job then are told.
        """
        poll = self._joined(job_id)
        try:
            async for job in poll.states():
                yield job
        finally:
            self._leave(job_id, poll)

    def _joined(self, job_id: str) -> "_Poll":
        poll = self._polls.get(job_id)
        if poll is None or poll.over:
            poll = self._polls[job_id] = _Poll(self._get, job_id, self._poll_s)
        poll.watchers += 1
        return poll

    def _leave(self, job_id: str, poll: "_Poll") -> None:
        poll.watchers -= 1
        if poll.watchers:
            return
        poll.task.cancel()
        if self._polls.get(job_id) is poll:
            del self._polls[job_id]


class _Poll:
    """One job as last seen, and the task that looks. Each change sets `_changed` and puts a new one there."""

    def __init__(self, get: Get, job_id: str, poll_s: float) -> None:
        self.watchers = 0
        self.over = False
        self._job: Job | None = None
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run(get, job_id, poll_s), name=f"watch-{job_id}")

    async def states(self) -> AsyncGenerator[Job, None]:
        """Yield what one watcher has not seen yet, to the end."""
        seen: Job | None = None
        while True:
            # Taken before the look: a change in between sets this very event, and is not slept through.
            changed = self._changed
            if self._job is not None and self._job != seen:
                yield (seen := self._job)
            elif self._error is not None:
                raise self._error
            elif self.over:
                return
            else:
                await changed.wait()

    async def _run(self, get: Get, job_id: str, poll_s: float) -> None:
        try:
            # Shielded: one that is ended in the middle of a query would cost its database connection.
            while (job := await asyncio.shield(get(job_id))) is not None:
                self._tell(job)
                if job.finished:
                    break
                await asyncio.sleep(poll_s)
        except Exception as error:
            self._error = error
        finally:
            self.over = True
            self._changed.set()

    def _tell(self, job: Job) -> None:
        if job != self._job:
            self._job = job
            self._changed.set()
            self._changed = asyncio.Event()
