"""A world in which log-probabilities tell what answers cannot: a fake, rows and a calibration by evidence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.calibration.material import Material, all_texts, assemble
from service.calibration.rows import DevRow
from service.llm.port import Draw, Generation, GenerationRequest
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import calibration
from tests.support.fakes import FakeLLM

ROWS, SAMPLES, DIMENSION = 80, 4, 16


def sureness(i: int) -> float:
    """The probability of the answer to question i, 0.05 .. 0.95."""
    return 0.05 + 0.9 * (i % 10) / 9


def rows(count: int = ROWS) -> list[DevRow]:
    """Questions always answered alike; the answer is right as often as the LLM is sure of it."""
    rng = np.random.default_rng(3)
    right = rng.random(count) < [sureness(i) for i in range(count)]
    return [
        DevRow(i + 1, None, (f"answer {i}" if right[i] else f"else {i}",), prompt=f"question {i}")
        for i in range(count)
    ]


class TellingLLM(FakeLLM):
    """Answers "question i" with "answer i", all alike, and tells log-probabilities while `tells` is true.

    `told`: the log-probability by question instead, in nats.
    """

    def __init__(self, *, tells: bool = True, told: Mapping[str, float] | None = None) -> None:
        super().__init__({f"question {i}": [f"answer {i}"] for i in range(ROWS)})
        self.tells, self.told = tells, dict(told or {})

    async def generate(self, request: GenerationRequest) -> Generation:
        found = await super().generate(request)
        if not self.tells:
            return found
        total = self._total(request.prompt or "")
        return replace(found, draws=tuple(replace(draw, total_logprob=total) for draw in found.draws))

    def _total(self, prompt: str) -> float:
        number = int(prompt.rpartition(" ")[2]) if prompt[-1:].isdigit() else 0
        return self.told.get(prompt, math.log(sureness(number)))


def drawn(count: int = ROWS, *, tells: bool = True) -> list[DevRow]:
    """The rows with the answers of `TellingLLM`."""
    found = []
    for i, row in enumerate(rows(count)):
        total = math.log(sureness(i)) if tells else None
        found.append(replace(row, draws=(Draw(f"answer {i}", total_logprob=total),) * SAMPLES, complete=True))
    return found


def material(stored: Sequence[DevRow] | None = None) -> Material:
    """The rows as vectors: each text a random one."""
    stored = drawn() if stored is None else stored
    texts = all_texts(stored)
    vectors = np.random.default_rng(0).normal(size=(len(texts), DIMENSION))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return assemble(stored, SAMPLES, unit, {text: i for i, text in enumerate(texts)}, DIMENSION)


def by_evidence(**parts: Any) -> Any:
    """A calibration by evidence of up to 5 answers; g = u at T = 1, but for one answer g rises with sqrt."""
    table = {m: EvidenceMap(1.0, 0.0, 0.5 if m == 1 else 1.0) for m in range(1, 6)}
    return replace(calibration(), method="evidence", evidence=table, **parts)
