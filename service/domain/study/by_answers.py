"""What the first m' answers of each prompt are worth: maps and P(correct) fitted for m', and judged.

The first m', not random ones: they are what a request for m' answers would have drawn, and cost. They judge
one text of a prompt, however few they are: its `answer`, or the dominant one of all answers (`FullRows`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain.calibrating.judged import Judged
from service.domain.calibrating.material import Material
from service.domain.decider import WITHOUT_EVIDENCE
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    fit_correctness,
    held_out_predictions,
)
from service.spectral.evidence import EvidenceMap, EvidenceSet
from service.spectral.evidence_fit import fit_evidence
from service.spectral.fit import fit_depolarized, fit_temperature
from service.spectral.maps import CalibrationMap, Identity
from service.spectral.risk import risks, served_lambda_max
from service.spectral.strata import stratified_folds

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
AnyMap = CalibrationMap | EvidenceMap
# Begins the same random numbers anew: each fit is judged on the same folds, whatever others there are.
Fresh = Callable[[], np.random.Generator]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map whose p(y) and entropy are features of P(correct), with the log-probabilities and without.
CORRECT_BY = ("evidence", "depolarized")


@dataclass(frozen=True, slots=True, eq=False)
class MapAt:
    """What a map serves with so many answers, (n,) each: risks in nats, lambda_max, and its gap to c_1."""

    risks: Floats
    lambda_max: Floats
    gaps: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by so many of their answers.

    right: (n,) verdicts on the text judged. served: by map, none but evidence for one answer. correct:
    P(correct) (n,) by `CORRECT_BY`, the base rate where no model beats it; base: (n,) the base rate of the
    verdicts fitted on. why_none: why there is no P(correct) at all, else "". tokens: completion tokens per
    question, None where a draw does not tell.
    """

    num_samples: int
    right: NDArray[np.bool_]
    served: Mapping[str, MapAt]
    correct: Mapping[str, Floats]
    base: Floats
    why_none: str
    tokens: float | None


def sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers that are compared, up to m, which is always the last.

    >>> sizes(12)
    [1, 2, 3, 5, 8, 10, 12]
    """
    return [*(m for m in SIZES if m < num_samples), num_samples]


def mean_tokens(material: Material, num_samples: int) -> float | None:
    """Return the mean number of tokens of the first answers of a full row; None where one is not known."""
    drawn = [draw.num_tokens for i in material.full for draw in material.rows[int(i)].draws[:num_samples]]
    known = [count for count in drawn if count is not None]
    return sum(known) / material.full.size if len(known) == len(drawn) else None


def judge(
    dev: Judged, test: Judged, num_samples: int, tokens: float | None, eps: float, rng: Fresh
) -> AtSize:
    """Return what is fitted on `dev` with so many answers, as judged on `test`."""
    maps = _maps(dev, num_samples, eps)
    found = {
        name: fit_correctness(_columns(dev, maps[name], name), dev.right, rng=rng())
        for name in CORRECT_BY
        if name in maps
    }
    base = np.full(len(test), dev.right.mean())
    correct = {
        name: one.model.predict(_columns(test, maps[name], name)) if one.model else base
        for name, one in found.items()
        if one.candidates
    }
    served = {name: _served(map_, test) for name, map_ in maps.items()}
    why = _why_none(found, "answers of the dev file")
    return AtSize(num_samples, test.right, served, correct, base, why, tokens)


def judge_held_out(
    rows: Judged,
    fold: Ints,
    num_samples: int,
    tokens: float | None,
    eps: float,
    rng: Fresh,
) -> AtSize:
    """Return the same for one set of rows, each judged by fits without its fold (n,)."""
    folds = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    parts = [(held, _maps(rows.take(fold != k), num_samples, eps)) for k, held in enumerate(folds)]
    order = np.argsort(np.concatenate(folds))
    names = list(parts[0][1])
    served = {
        name: _joined([_served(maps[name], rows.take(held)) for held, maps in parts], order) for name in names
    }
    columns = {
        name: _stacked([_columns(rows.take(held), maps[name], name) for held, maps in parts], order)
        for name in CORRECT_BY
        if name in names
    }
    found = {name: fit_correctness(one, rows.right, rng=rng()) for name, one in columns.items()}
    base = _base_rates(rows.right, rng)
    correct = {
        name: base if one.model is None or one.held_out is None else one.held_out
        for name, one in found.items()
        if one.candidates
    }
    return AtSize(num_samples, rows.right, served, correct, base, _why_none(found, "answers"), tokens)


def _maps(rows: Judged, num_samples: int, eps: float) -> dict[str, AnyMap]:
    """Return every map fitted on the rows; one answer has a spectrum of 1, which only evidence can map."""
    found: dict[str, AnyMap] = {}
    if num_samples > 1:
        found["raw"] = Identity(eps)
        found["temperature"] = fit_temperature(rows.rows, eps=eps).map
        found["depolarized"] = fit_depolarized(rows.rows).map
    if rows.missing_mass is not None:
        found["evidence"] = fit_evidence(EvidenceSet(rows.rows, rows.missing_mass)).map
    return found


def _served(map_: AnyMap, rows: Judged) -> MapAt:
    over = rows.over(map_)
    largest = served_lambda_max(over, rows.rows)
    return MapAt(risks(over, rows.rows), largest, largest - np.clip(rows.rows.alignment[:, 0], 0.0, 1.0))


def _columns(rows: Judged, map_: AnyMap, name: str) -> Columns:
    found = rows.columns(map_)
    # Without evidence means what a server without log-probabilities would leave.
    return found if name == "evidence" else {k: v for k, v in found.items() if k in WITHOUT_EVIDENCE}


def _joined(parts: list[MapAt], order: Ints) -> MapAt:
    columns = ([part.risks, part.lambda_max, part.gaps] for part in parts)
    return MapAt(*(np.concatenate(column)[order] for column in zip(*columns, strict=True)))


def _stacked(parts: list[Columns], order: Ints) -> dict[str, ArrayLike]:
    return {name: np.concatenate([np.asarray(one[name]) for one in parts])[order] for name in parts[0]}


def _base_rates(right: NDArray[np.bool_], rng: Fresh) -> Floats:
    """Return for each row (n,) the share right among the rows of the other folds."""
    fold = stratified_folds(right, 5, rng())
    return held_out_predictions({}, right, (), fold)


def _why_none(found: Mapping[str, CorrectnessFit], what: str) -> str:
    """Return why there is no P(correct) with so many answers; "" where there is one, or nothing to fit."""
    for one in found.values():
        if one.why_none == "one_kind":
            return f"all {one.num_right + one.num_wrong} {what} are {'right' if one.num_right else 'wrong'}"
        if one.why_none == "too_few_verdicts":
            kind, count = min(("right", one.num_right), ("wrong", one.num_wrong), key=lambda pair: pair[1])
            return f"only {count} of {one.num_right + one.num_wrong} {what} are {kind}"
    return ""
