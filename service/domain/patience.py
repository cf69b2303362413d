"""Trying again for as long as it may help: an LLM server that restarts is down for minutes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from service.domain.errors import (
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    LLMError,
    LLMUnavailable,
    Overloaded,
)

T = TypeVar("T")
Notify = Callable[[str], Awaitable[None]]

_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Waits double from `first_wait_s` to `longest_wait_s`.

    `give_up_s`: of being unavailable in a row. `max_failures`: in a row, of answers that came but were no use
    (a bad response, a server error, a timeout).
    """

    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0
    max_failures: int = 8

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]], notify: Notify) -> T:
        """Return what `attempt` returns, however often it fails before in a way that may pass.

        `notify` is told what is waited for. Raises the last error when it will not pass.
        """
        began, wait, failures = time.monotonic(), self.first_wait_s, 0
        while True:
            try:
                return await attempt()
            except _PASSING as error:
                if time.monotonic() - began > self.give_up_s:
                    raise
                reason: EigencalError = error
            except (LLMError, DeadlineExceeded) as failure:
                failures += 1
                if not may_pass(failure) or failures >= self.max_failures:
                    raise
                reason = failure
            await notify(f"Waiting to try again: {reason.detail}")
            await asyncio.sleep(max(wait, min(reason.retry_after_s or 0.0, self.longest_wait_s)))
            wait = min(2 * wait, self.longest_wait_s)


def may_pass(error: EigencalError) -> bool:
    """Tell whether the same call may succeed later."""
    status = error.extra.get("llm_status")
    return error.retryable or (isinstance(status, int) and status >= 500)
