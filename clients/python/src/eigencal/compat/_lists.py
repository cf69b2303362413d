"""Lists of prompts: what they must be, and how several are asked at a time, in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from eigencal._errors import EigencalError
from eigencal._progress import ProgressCallback
from eigencal.compat._options import ValidationError
from eigencal.compat._results import TLMScore, failed

T = TypeVar("T", bound=TLMScore)
Pair = tuple[str, str | None]
AT_A_TIME = 8


def pairs_of(prompt: object, response: object = None, *, judges: bool = False) -> list[Pair]:
    """Return prompts with the responses to judge, or None each. Raises ValidationError."""
    prompts = texts(prompt, "prompt")
    if not judges:
        return [(each, None) for each in prompts]
    responses = texts(response, "response")
    if len(prompts) != len(responses):
        raise ValidationError(f"There are {len(prompts)} prompts and {len(responses)} responses.")
    return list(zip(prompts, responses, strict=True))


def texts(given: object, what: str) -> list[str]:
    """Return a list of texts. Raises ValidationError."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValidationError(f"{what} must be a text or a list of texts, like the prompt.")
    if wrong := [type(each).__name__ for each in given if not isinstance(each, str)]:
        raise ValidationError(f"Every {what} of a list must be a text, not {wrong[0]}.")
    return list(given)


def text(given: object, what: str) -> str:
    """Return a text. Raises ValidationError."""
    if not isinstance(given, str):
        raise ValidationError(f"{what} must be a text, like the prompt, not {type(given).__name__}.")
    return given


def all_of(ask: Callable[[Pair], T], pairs: Sequence[Pair], tell: ProgressCallback) -> list[T]:
    """Return what became of each, in their order; an error stands in its place."""

    def one(numbered: tuple[int, Pair]) -> T:
        number, pair = numbered
        try:
            return ask(pair)
        except EigencalError as error:
            return cast(T, failed(error, number, response=pair[1] is None))

    results: list[T] = []
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for done, result in enumerate(threads.map(one, enumerate(pairs)), 1):
            results.append(result)
            tell(done, len(pairs), "prompts")
    return results


async def all_awaited(ask: Callable[[Pair], Awaitable[T]], pairs: Sequence[Pair]) -> list[T]:
    """Do as `all_of`, awaited."""
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int, pair: Pair) -> T:
        async with room:
            try:
                return await ask(pair)
            except EigencalError as error:
                return cast(T, failed(error, number, response=pair[1] is None))

    return await asyncio.gather(*(one(number, pair) for number, pair in enumerate(pairs)))
