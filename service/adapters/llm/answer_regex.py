"""The answer regex, in bounded time and beside the event loop: a pattern may backtrack for hours."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import regex

from service.domain.errors import LLMBadResponse

LONGEST_S = 1.0  # of one search; patterns that do not backtrack take microseconds
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
            f"EIGENCAL_ANSWER_REGEX took longer than {longest_s:g} s on an answer of {len(text)} characters: "
            "the pattern backtracks, rewrite it."
        ) from None
    return "" if match is None else match.group(1 if compiled.groups else 0) or ""


async def beside_the_loop(read: Callable[[str], str], outputs: Sequence[str]) -> list[str]:
    """Return what `read` makes of each output, read in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: list(map(read, outputs)))


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    return regex.compile(pattern, regex.VERSION0)  # as Python's own `re` reads it
