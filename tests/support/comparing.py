"""A fake LLM that compares answers, with scripted replies."""

import asyncio
import re
from collections.abc import Callable

from service.llm.prompt import GenerationRequest
from service.llm.samples import Generation
from tests.support.fakes import FakeLLM, last_user_text

# P(Yes) of a first and a second answer; None for a reply other than Yes and No.
Same = Callable[[str, str], float | None]


def pair_of(request: GenerationRequest) -> tuple[str, str]:
    """Return the two answers that a request asks to compare."""
    first, second = re.findall(r"^Answer [12]: (.*)$", last_user_text(request), re.MULTILINE)
    return first, second


def is_comparison(request: GenerationRequest) -> bool:
    """Return True for the question whether two answers say the same."""
    return request.is_question and "\nAnswer 1: " in last_user_text(request)


class ComparingLLM(FakeLLM):
    """A `FakeLLM` that also compares answers.

    `compared`: the pairs, in order. `until`: comparisons wait for this event.
    """

    def __init__(self, same: Same = lambda first, second: float(first == second), **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.same = same
        self.compared: list[tuple[str, str]] = []
        self.until: asyncio.Event | None = None

    async def generate(self, request: GenerationRequest) -> Generation:
        if is_comparison(request) and self.until is not None:
            await self.until.wait()
        return await super().generate(request)

    def _yes(self, request: GenerationRequest) -> float | None:
        if not is_comparison(request):
            return super()._yes(request)
        pair = pair_of(request)
        self.compared.append(pair)
        return self.same(*pair)
