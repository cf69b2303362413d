"""A material with fewer answers, or fewer rows: what it would be, had no more been drawn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.material import Material
from service.domain.outcomes import log_probabilities
from service.spectral.batch import Answers


def first_answers(material: Material, num_samples: int) -> Material:
    """Return the first `num_samples` answers of each row that has as many: all are full, vectors are views.

    For the same rows at every number, `only(material, material.full)` first.
    """
    kept = [i for i, one in enumerate(material.answers) if one.index.size >= num_samples]
    return _shortened(only(material, kept), num_samples)


def only(material: Material, positions: Sequence[int] | NDArray[np.int_]) -> Material:
    """Return some of the rows, in the order of their positions."""
    chosen = [int(i) for i in positions]
    return replace(
        material,
        rows=[material.rows[i] for i in chosen],
        answers=[material.answers[i] for i in chosen],
        texts=[material.texts[i] for i in chosen],
        full=np.flatnonzero(np.isin(chosen, material.full)),
        # Empty in a material that was made without them.
        totals=[material.totals[i] for i in chosen] if material.totals else (),
        judged=[material.judged[i] for i in chosen] if material.judged else (),
        questions=[material.questions[i] for i in chosen] if material.questions else (),
    )


def _shortened(material: Material, num_samples: int) -> Material:
    pairs = list(zip(material.answers, material.texts, strict=True))
    # Distinct answers come in order of appearance: the first draws have the first of them.
    seen = [int(one.index[:num_samples].max()) + 1 for one, _ in pairs]
    return replace(
        material,
        rows=[replace(one, draws=one.draws[:num_samples]) for one in material.rows],
        answers=[_cut(one, k, num_samples) for (one, _), k in zip(pairs, seen, strict=True)],
        texts=[texts[:k] for (_, texts), k in zip(pairs, seen, strict=True)],
        full=np.arange(len(pairs)),
        num_samples=num_samples,
        totals=[first_totals(material, i, num_samples) for i in range(len(pairs))],
    )


def _cut(one: Answers, distinct: int, num_samples: int) -> Answers:
    return Answers(one.vectors[:distinct], one.index[:num_samples], one.references)


def first_totals(material: Material, position: int, num_samples: int) -> NDArray[np.float64] | None:
    """Return the log-probability of each of a row's first answers; None where one of them has none."""
    known = material.totals[position] if material.totals else None
    if known is not None:
        return known[:num_samples]
    # The first may all have one where a later one has none.
    return log_probabilities(material.rows[position].draws[:num_samples])
