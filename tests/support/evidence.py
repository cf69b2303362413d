"""A world in which only log-probabilities are informative: a fake LLM, rows and an evidence calibration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.calibration.material import DevSet, all_texts, assemble
from service.calibration.rows import DevRow
from service.llm.prompt import GenerationRequest
from service.llm.samples import Draw, Generation
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import calibration
from tests.support.fakes import FakeLLM, last_user_text

ROWS, SAMPLES, DIMENSION = 80, 4, 16


def sureness(i: int) -> float:
    """Return the probability of the answer to question i, 0.05 .. 0.95."""
    return 0.05 + 0.9 * (i % 10) / 9


def rows(count: int = ROWS) -> list[DevRow]:
    """Return questions with a constant answer, which is right as often as the LLM is sure."""
    rng = np.random.default_rng(3)
    right = rng.random(count) < [sureness(i) for i in range(count)]
    return [
        DevRow(i + 1, None, (f"answer {i}" if right[i] else f"else {i}",), prompt=f"question {i}")
        for i in range(count)
    ]


class TellingLLM(FakeLLM):
    """Always answers "question i" with "answer i", with log-probabilities while `tells` is true.

    `told`: log-probabilities by question that override the default, in nats.
    """

    def __init__(self, *, tells: bool = True, told: Mapping[str, float] | None = None) -> None:
        super().__init__({f"question {i}": [f"answer {i}"] for i in range(ROWS)})
        self.tells, self.told = tells, dict(told or {})

    async def generate(self, request: GenerationRequest) -> Generation:
        generation = await super().generate(request)
        if not self.tells:
            return generation
        total = self._total(last_user_text(request))
        return replace(
            generation, draws=tuple(replace(draw, total_logprob=total) for draw in generation.draws)
        )

    def _total(self, prompt: str) -> float:
        number = int(prompt.rpartition(" ")[2]) if prompt[-1:].isdigit() else 0
        return self.told.get(prompt, math.log(sureness(number)))


def drawn(count: int = ROWS, *, tells: bool = True) -> list[DevRow]:
    """Return the rows with the answers of `TellingLLM`."""
    rows_ = []
    for i, row in enumerate(rows(count)):
        total = math.log(sureness(i)) if tells else None
        rows_.append(replace(row, draws=(Draw(f"answer {i}", total_logprob=total),) * SAMPLES, complete=True))
    return rows_


def material(stored: Sequence[DevRow] | None = None) -> DevSet:
    """Return the rows with a random vector for each text."""
    stored = drawn() if stored is None else stored
    texts = all_texts(stored)
    vectors = np.random.default_rng(0).normal(size=(len(texts), DIMENSION))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return assemble(stored, SAMPLES, unit, {text: i for i, text in enumerate(texts)}, DIMENSION)


def by_evidence(**parts: Any) -> Any:
    """Return an evidence calibration for up to 5 answers: g = u at T = 1, except sqrt for one answer."""
    table = {m: EvidenceMap(1.0, 0.0, 0.5 if m == 1 else 1.0) for m in range(1, 6)}
    return replace(calibration(), method="evidence", evidence=table, **parts)
