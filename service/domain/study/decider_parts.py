"""P(correct) and what thresholds on it promise, in the shape of a report."""

import math
from typing import cast

from service.domain.calibrating.deciders import DecidedAt
from service.domain.calibrating.fitting import Fitted, Stream, rng
from service.domain.decider import PROMISE_MEANING
from service.domain.scoring.deciding import lowest_named, percent
from service.domain.scoring.judgement import Target
from service.domain.study.experiments.reliability import diagram_rows
from service.domain.study.model import estimate
from service.domain.study.report_model import Bin, CorrectnessAt, CorrectnessPart, Estimate, PromiseAt, RiskAt
from service.spectral.correctness import bootstrap_auroc
from service.spectral.correctness_model import CorrectnessFit, Scores
from service.spectral.reliability import label_band, reliability_diagram
from service.spectral.selective import Promise, SelectiveCounts, error_bound, promises

TARGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
LESS_THAN_ANY = 1e-9  # error; a bound so low takes a billion rows


def correctness_part(fitted: Fitted, num_samples: int, seed: int, target: Target) -> CorrectnessPart:
    """Return whether answers are right, for a calibration of so many answers. Blocking: a second.

    target: what decisions keep by default, and so one of the promises.
    """
    at = fitted.decided.at
    whole = at[num_samples]
    # The same for every number, so that a table can hold them.
    wanted = sorted({*targets(1 - float(whole.fitted.mean())), target.error})
    sure = target.confidence
    return {
        "num_samples": num_samples,
        "confidence": sure,
        "by_num_samples": [_at(m, one, wanted, sure, seed) for m, one in sorted(at.items())],
        "diagram": _diagram(whole, seed),
        "risk_coverage": risk_coverage(whole.decider.counts, sure) if whole.decider else [],
        "promises": promises_part(whole.decider.counts, wanted, sure) if whole.decider else [],
        "meaning": PROMISE_MEANING,
    }


def targets(base_error: float) -> list[float]:
    """Return the target errors of a table; the base rate's error is one where it is above the others.

    base_error: of rows that are not counted: a target must not depend on those.
    """
    rounded = round(base_error, 2)
    return [*TARGETS, *([rounded] if TARGETS[-1] < rounded < 1 else [])]


def _at(num_samples: int, one: DecidedAt, wanted: list[float], sure: float, seed: int) -> CorrectnessAt:
    best, base = _best(one.fit), one.fit.base_rate
    counts = None if one.decider is None else one.decider.counts
    return {
        "num_samples": num_samples,
        "fitted_right": one.fit.num_right,
        "fitted_wrong": one.fit.num_wrong,
        "counted_right": int(one.counted.sum()),
        "counted_wrong": int((~one.counted).sum()),
        "features": list(one.fit.model.features) if one.fit.model else [],
        "log_loss": best.log_loss if best else None,
        "base_log_loss": base.log_loss if base else None,
        "brier": best.brier if best else None,
        "base_brier": base.brier if base else None,
        "auroc": _auroc(one, seed),
        "why_none": one.fit.why_none,
        "promises": promises_part(counts, wanted, sure) if counts else [],
        "lowest": lowest_part(counts, sure) if counts else None,
    }


def _best(fit: CorrectnessFit) -> Scores | None:
    """Return the scores of the features that were chosen, or would have been; None where none were tried."""
    return min(fit.candidates, key=lambda one: one.log_loss, default=None)


def _auroc(one: DecidedAt, seed: int) -> Estimate:
    if one.fit.held_out is None:
        return estimate(math.nan)
    found = bootstrap_auroc(one.fit.held_out, one.fitted, rng(seed, Stream.AUROC))
    return estimate(found.value, found.low, found.high)


def _diagram(one: DecidedAt, seed: int) -> list[Bin]:
    """Return the reliability diagram of P(correct), each row predicted by the model of the other folds."""
    predicted = one.fit.held_out
    if one.decider is None or predicted is None:
        return []
    found, band = (
        reliability_diagram(predicted, one.fitted),
        label_band(predicted, rng(seed, Stream.CORRECTNESS)),
    )
    rows = diagram_rows("", found, one.fitted.size, band)
    return [cast("Bin", {name: row[name] for name in Bin.__annotations__}) for row in rows]


def risk_coverage(counts: SelectiveCounts, confidence: float) -> list[RiskAt]:
    """Return the error among the answers let through by threshold, strictest first, with its exact bound."""
    bounds = error_bound(counts.wrong, counts.answered, confidence)
    rows = zip(counts.thresholds, counts.answered, counts.wrong, bounds, strict=True)
    return [
        {
            "threshold": threshold,
            "coverage": answered / counts.num_rows,
            "error": wrong / answered,
            "bound": float(bound),
        }
        for threshold, answered, wrong, bound in rows
    ]


def promises_part(counts: SelectiveCounts, wanted: list[float], confidence: float) -> list[PromiseAt]:
    """Return what can be promised for each target error, in numbers and in words."""
    return [
        {
            "target_error": one.target_error,
            "threshold": one.threshold,
            "answered": one.answered,
            "wrong": one.wrong,
            "coverage": one.coverage,
            "lowest_error": one.lowest_error,
            "text": in_words(one),
        }
        for one in promises(counts, wanted, confidence)
    ]


def lowest_part(counts: SelectiveCounts, confidence: float) -> PromiseAt | None:
    """Return what the lowest error lets through that can be promised at all; None where none can."""
    # No rows promise so little, which makes the promise name the lowest that they do.
    [found] = promises(counts, [LESS_THAN_ANY], confidence)
    lowest = lowest_named(counts, found)
    return None if lowest is None else promises_part(counts, [lowest], confidence)[0]


def in_words(promise: Promise) -> str:
    """Return the promise as a sentence, or that it cannot be made, and which can."""
    sure = f"with {promise.confidence:.0%} confidence".replace("%", " %")
    like = "on questions like those of the dev set"
    if promise.threshold is not None:
        most = f"at most {percent(promise.target_error)} of the answers let through are wrong"
        return f"{sure.capitalize()}, {most}, {like}."
    if promise.lowest_error is None:
        return f"No error can be promised {sure}: these rows are too few."
    wanted, lowest = percent(promise.target_error), percent(promise.lowest_error)
    return f"An error of at most {wanted} cannot be promised {sure}; the lowest that can be is {lowest}."
