"""The answer regex, in bounded time and beside the event loop: a pattern may backtrack for hours."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import regex

from service.domain.errors import LLMBadResponse

LONGEST_S = 1.0  # of the searches of one request; patterns that do not backtrack take microseconds
# Threads of their own: answers that take long hold up each other, and nothing else.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="answer-regex")


def check(pattern: str) -> None:
    """Raise ValueError when the pattern does not compile."""
    try:
        _compiled(pattern)
    except regex.error as error:
        raise ValueError(f"The answer regex does not compile: {error}") from None


def extract(pattern: str, text: str, *, longest_s: float = LONGEST_S) -> str:
    """Return group 1 of the first match, or the whole match when the pattern has no group; "" without one.

    Raises LLMBadResponse when the search takes longer than `longest_s`.
    """
    compiled = _compiled(pattern)
    try:
        match = compiled.search(text, timeout=longest_s)
    except TimeoutError:
        raise LLMBadResponse(
            f"EIGENCAL_ANSWER_REGEX took longer than {LONGEST_S:g} s in all, the last time on an answer of "
            f"{len(text)} characters: the pattern backtracks, rewrite it."
        ) from None
    return "" if match is None else match.group(1 if compiled.groups else 0) or ""


async def beside_the_loop(
    read: Callable[[str, float], str], outputs: Sequence[str], *, longest_s: float = LONGEST_S
) -> list[str]:
    """Return what `read` makes of each output and of the seconds left for it, read in a thread."""

    def all_of_them() -> list[str]:
        ends = time.monotonic() + longest_s
        return [read(output, max(ends - time.monotonic(), 0.001)) for output in outputs]

    return await asyncio.get_running_loop().run_in_executor(_THREADS, all_of_them)


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    return regex.compile(pattern, regex.VERSION0)  # as Python's own `re` reads it
