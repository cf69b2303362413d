"""When a job waits before it asks the LLM or the embedder: for one that is down, and for live scores."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from service.embedding.port import Embedder, EmbedderIdentity
from service.errors import (
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    LLMError,
    LLMUnavailable,
    Overloaded,
)
from service.scoring.scorer import LiveLoad

T = TypeVar("T")
Notify = Callable[[str], Awaitable[None]]

_POLL_S = 0.02
# Statuses by which a server refuses a single request.
REFUSALS = frozenset({400, 413, 422})
_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded, DeadlineExceeded, LLMError)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Waits double from `first_wait_s` to `max_wait_s`.

    `give_up_s`: of failing in a row in ways that may pass. A server that answers with 500, with nonsense or
    not in time is treated like one that is down: it may be on its way up, or its proxy may speak for it.
    `refused_give_up_s`: of refusing everything from the start, which is mostly a wrong set-up.
    `ask_again_s`: before each time that rows are asked again which were refused while others were answered.
    """

    first_wait_s: float = 0.5
    max_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0
    refused_give_up_s: float = 300.0
    ask_again_s: tuple[float, ...] = (5.0, 60.0)

    async def keep_trying(
        self, attempt: Callable[[], Awaitable[T]], notify: Notify, *, refusals_pass: bool = False
    ) -> T:
        """Return what `attempt` returns, however often it fails before in a way that may pass.

        `notify` is given what is waited for. Raises the last error when it will not pass.
        """
        began, wait = time.monotonic(), self.first_wait_s
        while True:
            try:
                return await attempt()
            except _PASSING as error:
                status = error.extra.get("llm_status")
                failed = error.retryable or (isinstance(status, int) and status >= 500)
                passing = failed or (refusals_pass and refuses(error))
                if not passing or time.monotonic() - began > self.give_up_s:
                    raise
                reason: EigencalError = error
            await notify(f"Waiting to try again: {for_owner(reason)}")
            await asyncio.sleep(max(wait, min(reason.retry_after_s or 0.0, self.max_wait_s)))
            wait = min(2 * wait, self.max_wait_s)


async def embedder_identity(
    embedder: Embedder, patience: Patience, notify: Notify, *, ask_anew: bool = False
) -> EmbedderIdentity:
    """Return what decides the vectors, once the embedder is there to tell. ask_anew: it may have changed."""

    async def ask() -> EmbedderIdentity:
        if ask_anew:
            await embedder.check()
        try:
            return embedder.identity
        except EmbedderUnavailable:
            await embedder.check()
            return embedder.identity

    return await patience.keep_trying(ask, notify)


def for_owner(error: EigencalError) -> str:
    """Return what a job's owner, and nobody else, is told of an error."""
    return error.full_detail if isinstance(error, LLMError) else error.detail


def refuses(error: EigencalError) -> bool:
    """Tell whether the LLM server refused this very request, as it may another row alone."""
    return error.extra.get("llm_status") in REFUSALS


class LiveFirst:
    """Turns for work that may wait.

    While nothing live is under way, every turn begins at once. While something is, one turn at a time, each
    after a wait for a quiet moment. Where none comes, that wait lasts so long that turns take `share` of the
    time, and `max_wait_s` at most: a calibration is slowed, but gets on however busy the service is.
    `live` counts the live scores under way; without it there are none.
    """

    def __init__(self, live: LiveLoad | None = None, *, share: float = 0.5, max_wait_s: float = 3.0) -> None:
        self._live = live or LiveLoad()
        self._pause = (1 - share) / share  # after a turn, in units of its length
        self._max_wait_s = max_wait_s
        self._next = 0.0  # the earliest that a turn may begin beside live work
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn; waits for it to begin."""
        if not self._live.under_way:
            yield
            return
        async with self._one:
            quiet = await self._quiet()
            if not quiet:
                began = time.monotonic()
                try:
                    yield
                finally:
                    now = time.monotonic()
                    self._next = now + min(self._pause * (now - began), self._max_wait_s)
        if quiet:
            yield

    async def _quiet(self) -> bool:
        """Wait for a moment without live work; False when none came in time."""
        while self._live.under_way:
            left = self._next - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(_POLL_S, left))
        return True
