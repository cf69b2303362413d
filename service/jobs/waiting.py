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
MAX_PAUSE_S = 3.0
# Statuses by which a server refuses a single request.
REFUSALS = frozenset({400, 413, 422})
_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded, DeadlineExceeded, LLMError)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Waits double from `first_wait_s` to `max_wait_s`.

    `give_up_s`: of failing in a row in ways that may pass. A server that answers with 500, with nonsense or
    not in time is treated like one that is down: it may be on its way up, or its proxy may speak for it.
    `ask_again_s`: before each time that rows are asked again which the LLM server refused.
    """

    first_wait_s: float = 0.5
    max_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0
    ask_again_s: tuple[float, ...] = (5.0, 60.0)

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]], notify: Notify) -> T:
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
                if not failed or time.monotonic() - began > self.give_up_s:
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


class LiveFirst:
    """Turns for work that may wait.

    While nothing live is under way, every turn begins at once. While something is, one turn at a time, each
    after a quiet moment or a pause as long as the turn before it, and `MAX_PAUSE_S` at most: a calibration is
    slowed, but gets on however busy the service is. `live` counts the live scores under way.
    """

    def __init__(self, live: LiveLoad | None = None) -> None:
        self._live = live or LiveLoad()
        self._next = 0.0  # the earliest that a turn may begin beside live work
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn; waits for it to begin."""
        if not self._live.under_way:
            yield
            return
        async with self._one:
            while self._live.under_way and time.monotonic() < self._next:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_POLL_S)
            is_busy = bool(self._live.under_way)
            if is_busy:
                began = time.monotonic()
                try:
                    yield
                finally:
                    now = time.monotonic()
                    self._next = now + min(now - began, MAX_PAUSE_S)
        if not is_busy:  # it has become quiet: all that waited go on at once
            yield
