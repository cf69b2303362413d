"""A fake LLM that compares answers, with scripted replies."""

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import replace

from service.llm.port import Draw, Generation, GenerationRequest
from tests.support.fakes import FakeLLM, last_user_text

# P(Yes) of a first and a second answer; None for a reply other than Yes and No.
Same = Callable[[str, str], float | None]


def pair_of(request: GenerationRequest) -> tuple[str, str]:
    """Return the two answers that a request asks to compare."""
    first, second = re.findall(r"^Answer [12]: (.*)$", last_user_text(request), re.MULTILINE)
    return first, second


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
        if request.num_alternatives and self.until is not None:
            await self.until.wait()
        return await super().generate(request)

    def _answer(self, request: GenerationRequest) -> Generation:
        if not request.num_alternatives:
            return super()._answer(request)
        pair = pair_of(request)
        self.compared.append(pair)
        generation = super()._answer(replace(request, num_samples=1))
        yes = self.same(*pair)
        tokens = {"Maybe": -0.1} if yes is None else {"Yes": _log(yes), " no": _log(1 - yes)}
        return replace(generation, draws=(Draw("Yes", first_tokens=tokens),))


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-9))
