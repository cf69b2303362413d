"""An LLM that knows some of the bundled questions."""

from dataclasses import replace
from typing import Any

from service.jobs.knowing import bundled_rows
from service.llm.prompt import GenerationRequest, LLMIdentity
from tests.support.fakes import FakeLLM, last_user_text


class Knower(FakeLLM):
    """An LLM that knows every second bundled question, and which of its answers are right."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.right = {str(row.prompt): row.references[0] for row in bundled_rows()[::2]}

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity, with `answered` by whether a prompt, or a conversation, was asked."""
        asked = any(one.sampling == request.sampling for one in self.requests)
        return replace(super().identity(request), answered=asked)

    def _texts(self, request: GenerationRequest) -> list[str]:
        known = self.right.get(last_user_text(request))
        return [known or f"guess {i}" for i in range(request.num_samples)]

    def _yes(self, request: GenerationRequest) -> float | None:
        return 0.1 if "guess" in last_user_text(request).rsplit("Proposed answer:")[-1] else 0.9
