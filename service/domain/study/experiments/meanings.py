"""Which answers mean the same: by an NLI model where one is given, else by the embedder, and named so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.domain.study.split import Split
from service.spectral.batch import overlaps

Floats = NDArray[np.float64]

SAME_MEANING = 0.85
BY_EMBEDDING = f"embedding cosine of at least {SAME_MEANING} (no NLI model was used)"
ENTAILMENT, NEUTRAL = 0, 1


class EntailmentModel(Protocol):
    """Natural language inference. `name` says which model in the report."""

    @property
    def name(self) -> str:
        """Return the model's name."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return (n, 3) for n pairs (premise, hypothesis): entailment, neutral, contradiction; rows sum 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """The distinct answers to one prompt: equivalent (k, k) bool, similarity (k, k) >= 0, symmetric."""

    equivalent: NDArray[np.bool_]
    similarity: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """Every prompt of a split. `source`: who says what means the same."""

    source: str
    prompts: Sequence[Meaning]


def by_embedding(split: Split, least: float = SAME_MEANING) -> Meanings:
    """Return the stand-in: equivalent at a cosine of `least`; weights 2 max(cos, 0), the range of NLI's."""
    found = []
    for answers in split.answers:
        cosines = overlaps(answers).cosines
        found.append(Meaning(cosines >= least, 2.0 * np.clip(cosines, 0.0, 1.0)))
    return Meanings(BY_EMBEDDING, found)


def by_entailment(
    split: Split, model: EntailmentModel, progress: Callable[[], None] | None = None
) -> Meanings:
    """Return equivalence by entailment in both directions, as likeliest class.

    Weights are those of kernel language entropy: in each direction 1 for entailment, 1/2 for neutral, 0 for
    contradiction (expected, under the model's probabilities), added up. Answers are put after their prompt.
    """
    found = []
    for row, texts in zip(split.material.full, split.texts, strict=True):
        prompt = split.material.rows[int(row)].row.prompt or ""
        found.append(_judged(prompt, texts, model))
        if progress is not None:
            progress()
    return Meanings(f"entailment both ways by {model.name}", found)


def _judged(prompt: str, texts: Sequence[str], model: EntailmentModel) -> Meaning:
    size = len(texts)
    # An answer means the same as itself; the model is asked about pairs only.
    entails, weight = np.eye(size, dtype=np.bool_), np.eye(size)
    where = [(a, b) for a in range(size) for b in range(size) if a != b]
    if where:
        said = [f"{prompt} {text}".strip() for text in texts]
        p = model.probabilities([(said[a], said[b]) for a, b in where])
        rows, columns = np.array(where).T
        entails[rows, columns] = p.argmax(axis=1) == ENTAILMENT
        weight[rows, columns] = p[:, ENTAILMENT] + p[:, NEUTRAL] / 2
    return Meaning(entails & entails.T, weight + weight.T)
