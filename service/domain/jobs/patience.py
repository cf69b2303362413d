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

_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded, DeadlineExceeded, LLMError)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Waits double from `first_wait_s` to `longest_wait_s`.

    `give_up_s`: of failing in a row in ways that may pass. A server that answers with 500, with nonsense or
    not in time is treated like one that is down: it may be on its way up, or its proxy may speak for it.
    """

    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]], notify: Notify) -> T:
        """Return what `attempt` returns, however often it fails before in a way that may pass.

        `notify` is told what is waited for. Raises the last error when it will not pass.
        """
        began, wait = time.monotonic(), self.first_wait_s
        while True:
            try:
                return await attempt()
            except _PASSING as error:
                if not may_pass(error) or time.monotonic() - began > self.give_up_s:
                    raise
                reason: EigencalError = error
            await notify(f"Waiting to try again: {reason.detail}")
            await asyncio.sleep(max(wait, min(reason.retry_after_s or 0.0, self.longest_wait_s)))
            wait = min(2 * wait, self.longest_wait_s)


def may_pass(error: EigencalError) -> bool:
    """Tell whether the same call may succeed later."""
    status = error.extra.get("llm_status")
    return error.retryable or (isinstance(status, int) and status >= 500)
