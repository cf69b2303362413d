"""A selector with round numbers, and rows with verdicts from which a calibration can decide."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import JudgedTexts, Selector
from service.calibration.material import DevSet, all_texts, assemble
from service.calibration.rows import DevRow
from service.llm.samples import Draw
from service.scoring.score import Target
from service.spectral.correctness_model import AGREEMENT, CorrectnessModel, logit_probability
from service.spectral.evidence import EvidenceMap
from service.spectral.selective import SelectiveCounts
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

# At 90 % confidence, thresholds 0.8, 0.5 and 0.0 can promise errors of 0.108, 0.178 and 0.362.
COUNTS = SelectiveCounts(thresholds=(0.8, 0.5, 0.0), answered=(30, 60, 100), wrong=(0, 5, 27))
PLAIN = DepolarizedMap(1.0, 0.5)
# P(correct) is the agreement.
_MOST = float(logit_probability(1.0))
AGREED = CorrectnessModel((AGREEMENT,), (0.0,), (1.0,), (1.0,), 0.0, (-_MOST,), (_MOST,))
# Default target of decisions.
TARGET = Target(0.2, 0.9)


def selector(
    map_: DepolarizedMap | TemperatureMap | EvidenceMap = PLAIN, judged: JudgedTexts = "mixed"
) -> Selector:
    """Return a selector with P(correct) equal to the agreement, lambda_max of the dominant answer."""
    return Selector(map_, AGREED, COUNTS, judged)


def judged_rows(count: int, *, seed: int = 0, num_samples: int = 4, logprobs: bool = True) -> list[DevRow]:
    """Return questions with an `answer` that is right as often as the LLM is sure, as its samples show.

    Question i has one likely answer of probability p, uniform in [0.2, 0.98], and six others.
    """
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        p = rng.uniform(0.2, 0.98)
        drawn = np.where(rng.random(num_samples) < p, 0, rng.integers(1, 7, num_samples))
        mass = np.where(drawn == 0, p, (1 - p) / 6)
        draws = tuple(
            Draw(f"{i} says {k}", total_logprob=float(np.log(probability)) if logprobs else None)
            for k, probability in zip(drawn, mass, strict=True)
        )
        right = bool(rng.random() < p)
        row = DevRow(
            i + 1,
            None,
            (f"{i} says {0 if right else 9}",),
            prompt=f"q{i}",
            answer=f"{i} says 0",
            answer_logprob=float(np.log(p)) if logprobs else None,
            correct=right,
        )
        made.append(replace(row, draws=draws, complete=True))
    return made


def vectors_of(texts: Sequence[str], dimension: int = 12) -> NDArray[np.float32]:
    """Return a random unit vector for each text, the same for equal texts."""
    made = np.stack([np.random.default_rng(list(text.encode())).standard_normal(dimension) for text in texts])
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


def judged_material(stored: Sequence[DevRow]) -> DevSet:
    """Return the rows as vectors."""
    texts = all_texts(stored)
    place = {text: i for i, text in enumerate(texts)}
    return assemble(stored, max(len(row.draws) for row in stored), vectors_of(texts), place, 12)


def by_first_answers(count: int = 160) -> list[DevRow]:
    """Return the rows without answers and verdicts, with texts of one word."""

    def one_word(text: str) -> str:
        return text.replace(" says ", "x")

    return [
        DevRow(
            row.line,
            None,
            tuple(map(one_word, row.references)),
            prompt=row.prompt,
            draws=tuple(replace(draw, text=one_word(draw.text)) for draw in row.draws),
            complete=True,
        )
        for row in judged_rows(count)
    ]
