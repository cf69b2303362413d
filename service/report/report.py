"""Build the report of a calibration.

A report is stored, sent as JSON and rendered as a page. Numbers are floats. A figure that cannot be computed
(an AUROC with one class) is null, never NaN. Figures with `value`, `low` and `high` have a 95 % bootstrap
interval over prompts; `low` and `high` are null if no interval was computed. Risks and entropies are in nats.

Names of maps: "raw" (no calibration), "temperature" (the paper's), "depolarized" (ours), "evidence" (ours,
uses the answers' log-probabilities; absent if rows have none).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import PROMISE_MEANING, Calibration, Selector
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import Fitted, FittedMaps, OperatingPoint, Stream, rng
from service.calibration.labels import LabelledRows
from service.calibration.promotion import Promotion
from service.calibration.rows import FEW_ROWS, DevRow
from service.report.words import (
    about_checks,
    about_data,
    about_fit,
    about_improvement,
    about_verdicts,
    count,
    estimate,
    finite,
    opening,
    ranking,
    rows_needed,
)
from service.scoring.judge import answers_drawn, percent
from service.scoring.score import Target
from service.spectral.fit import PARAMETERS
from service.spectral.reliability import (
    ConsistencyBand,
    Null,
    ReliabilityDiagram,
    label_band,
    projection_null,
    reliability_diagram,
)
from service.spectral.resampling import ResampleCounts, Resamples, percentile_interval
from service.spectral.selective import (
    MAX_GROWTH,
    Promise,
    SelectiveCounts,
    lowest_error,
    promise,
    rows_to_promise,
    simultaneous_bounds,
)

Floats = NDArray[np.float64]
Part = dict[str, Any]

MAX_REFUSED = 50  # rows listed; the count includes all
TARGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def make_report(
    fitted: Fitted,
    calibration: Calibration,
    context: CrossValidated,
    promotion: Promotion,
    target: Target,
    *,
    num_rows: int,
    copies: int = 0,
    refused: Sequence[DevRow] = (),
) -> Part:
    """Return the report of a fitted calibration. Blocks for seconds.

    context: its figures on held-out rows. target: the default target of decisions. num_rows: rows in the
    file. copies: rows left out because another row asks the same question. refused: rows that the LLM server
    permanently refused while it answered others.
    """
    data, improvement = (
        data_part(fitted.rows, calibration, num_rows, copies, refused),
        promotion.improvement,
    )
    report: Part = {
        "version": 1,
        "calibration": calibration_part(calibration),
        "data": data,
        **fits_part(context),
        "projection": {name: projection_part(context, name) for name in ("raw", calibration.method)},
        "answers": answers_part(context),
        "parameters": [
            {
                "num_samples": m,
                "temperature": map_.temperature,
                "depolarization": None if calibration.method == "temperature" else map_.depolarization,
            }
            for m, map_ in sorted(calibration.parameters.items())
        ],
        # Differences on held-out rows, paired by prompt: this calibration minus `against` (an id, or null for
        # raw scores). Negative = better.
        "decision": {
            "asked": promotion.asked,
            "activated": promotion.activated,
            "against": improvement.against,
            "brier_difference": estimate(improvement.brier.value, improvement.brier),
            "difference": estimate(improvement.risk.value, improvement.risk),
            "loss_difference": estimate(improvement.loss.value, improvement.loss),
            "reason": promotion.reason,
        },
        "correctness": correctness_part(
            fitted, calibration.num_samples, context.seed, target, context.resamples
        ),
    }
    summary = opening(report, target.error, promotion.num_samples)
    selectors = [decided.selector for decided in fitted.decided.values()]
    change = None if summary["verdict"] == "No." else change_part(data, selectors, target)
    report["opening"] = {**summary, "change": change}
    rows = fitted.rows
    references = [rows.material.rows[i].references for i in rows.material.full]
    report["warnings"] = [
        *about_data(data, rows.right),
        *about_verdicts(rows.verdicts, references),
        *about_checks(rows.why_unchecked),
        *about_fit(fitted.maps.fits[fitted.method]),
        *about_improvement(improvement),
    ]
    if calibration.evidence:
        report["evidence_parameters"] = calibration.evidence_table()
    return report


def change_part(data: Part, selectors: Sequence[Selector | None], target: Target) -> Part | None:
    """Return what would improve the verdict; None if the target is promised, or without a model.

    text: a sentence. rows: number of further rows, null if more rows would not help. target_error: of the
    promise, null if rows are missing for any verdict.
    """
    missing = FEW_ROWS - data["rows_full"]
    if missing > 0:
        return {"text": rows_needed(missing), "rows": missing, "target_error": None}
    counts = [selector.counts for selector in selectors if selector is not None]
    if not counts:
        return None
    enough = [rows_to_promise(at, target.error, target.confidence) for at in counts]
    rows = min((more for more in enough if more is not None), default=None)
    if rows == 0:
        return None
    if rows is not None:
        more = count(rows, "more labelled row")
        text = f"With about {more} like these, an error of {percent(target.error)} could be promised."
    else:
        errors = [lowest_error(at, target.confidence, more_rows=MAX_GROWTH * at.num_rows) for at in counts]
        lowest = min((error for error in errors if error is not None), default=None)
        text = f"More rows like these would not be enough to promise {percent(target.error)}."
        if lowest is not None:
            text += f" With many more, this P(correct) could promise {percent(lowest)}."
    return {"text": text, "rows": rows, "target_error": target.error}


def calibration_part(calibration: Calibration) -> Part:
    """Return the calibration with its headline parameters.

    For "evidence", `temperature` and `depolarization` apply to answers without log-probabilities, and
    `evidence` to answers with log-probabilities.
    """
    headline = calibration.headline()
    part = {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": None if calibration.method == "temperature" else headline.depolarization,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": calibration.fingerprint.described(),
    }
    return part | ({"evidence": calibration.evidence_table()[-1]} if calibration.evidence else {})


def data_part(
    fitted: LabelledRows, calibration: Calibration, num_rows: int, copies: int, refused: Sequence[DevRow]
) -> Part:
    """Return a description of the data that the calibration was fitted on.

    rows: rows in the file. usable: rows with a reference and at least two answers, one per question.
    rows_full: usable rows with `num_samples` answers; the headline parameters and `evidence` are fitted on
    these. truncated: share of all answers. correct_from: source of the verdicts. claims: number of claims of
    the full rows, if claims are calibrated; accuracy is then the accuracy of the claims.
    """
    material = fitted.material
    rows = material.rows
    if material.groups is not None:
        # One claim of each answer represents the row.
        rows = [rows[i] for i in np.unique(material.groups, return_index=True)[1]]
    draws = [draw for row in rows for draw in row.draws]
    part = {
        "rows": num_rows,
        "usable": len(rows),
        "copies": copies,
        "rows_full": fitted.num_rows,
        "num_samples": material.num_samples,
        "drawn_by": "service" if calibration.fingerprint.source == "service" else "caller",
        "answers": len(draws),
        "distinct_mean": float(np.mean([len({draw.text for draw in row.draws}) for row in rows])),
        "truncated": sum(d.truncated for d in draws) / len(draws),
        "references_mean": float(np.mean([len(row.references) for row in rows])),
        "correct_from": fitted.source,
        "accuracy": float(fitted.right.mean()),
        "refused": {
            "count": len(refused),
            "rows": [{"line": row.line, "reason": row.refused or ""} for row in refused[:MAX_REFUSED]],
        },
    }
    return part if material.groups is None else part | {"claims": len(fitted)}


# The maps.


def fit_parts(fitted: FittedMaps) -> dict[str, Part]:
    """Return every map fitted on all full rows, by name.

    cv_risk: mean out-of-fold risk. at_bound: parameters with the optimum on a bound. stationarity_gap: checks
    convergence (about 0), not calibration. depolarization: null for "temperature", and for "evidence", which
    has an intercept and a slope instead because g differs by prompt.
    """
    parts = dict[str, Part]()
    for method, fit in fitted.fits.items():
        parts[method] = {
            "depolarization": None,
            **{name: getattr(fit.map, name) for name in PARAMETERS[method]},
            "risk": fit.risk,
            "cv_risk": float(fitted.risks[method].mean()),
            "mean_entropy": fit.mean_entropy,
            "at_bound": list(fit.at_bound),
            "stationarity_gap": fit.stationarity_gap,
        }
    return parts


def fits_part(context: CrossValidated) -> Part:
    """Return the fitted maps, and why a map is missing."""
    why = context.why_no_evidence
    return {"fits": fit_parts(context.fitted), "unfitted": {"evidence": why} if why else {}}


def projection_part(context: CrossValidated, name: str) -> Part:
    """Return the projection ECE of a map on prompts it was not fitted on, and its reliability diagram."""
    diagram, null = projection(context, name)
    return {"ece": diagram.ece, "bins": bins(diagram, len(context.rows), null.band)}


def projection(context: CrossValidated, name: str) -> tuple[ReliabilityDiagram, Null]:
    """Return the projection reliability diagram of a map, and its null by residuals of similar prompts."""
    scores, c1 = context.lambda_max(name), context.c1
    random, worlds = context.rng(Stream.PROJECTION), context.resamples.band
    return reliability_diagram(scores, c1), projection_null(scores, c1, random, num_draws=worlds)


def bins(diagram: ReliabilityDiagram, size: int, band: ConsistencyBand) -> list[Part]:
    """Return the bins of a diagram of `size` prompts that have a target.

    band_low, band_high: 95 % band of the observed mean under calibration, from the diagram's null.
    """
    return [
        {
            "lower": float(diagram.edges[b]),
            "upper": float(diagram.edges[b + 1]),
            "count": round(float(diagram.mass[b]) * size),
            "predicted": float(diagram.mean_predicted[b]),
            "observed": float(diagram.mean_target[b]),
            "band_low": finite(band.low[b]),
            "band_high": finite(band.high[b]),
        }
        for b in np.flatnonzero(np.isfinite(diagram.mean_target))
    ]


# P(correct), and the promises of thresholds on it.


def correctness_part(
    fitted: Fitted, num_samples: int, seed: int, target: Target, resamples: Resamples
) -> Part:
    """Return the figures of P(correct), by number of answers. Blocks for a second.

    diagram, risk_coverage, promises: for `num_samples` answers, with out-of-fold predictions; empty if there
    is no model for this number. target: the default target of decisions, listed among the promises.
    """
    full, confidence = fitted.decided[num_samples], target.confidence
    # The same errors for every number of answers, so that they fit in one table.
    errors = sorted({*TARGETS, target.error})
    # With 0 answers there may be fewer rows.
    picks = {
        decided.right.size: ResampleCounts.of(
            decided.right.size, rng(seed, Stream.AUROC), resamples.auroc, decided.groups
        )
        for decided in fitted.decided.values()
    }
    diagram = list[Part]()
    if full.selector is not None and full.fit.held_out is not None:
        predicted = full.fit.held_out
        band = label_band(predicted, rng(seed, Stream.CORRECTNESS), num_draws=resamples.band)
        diagram = bins(reliability_diagram(predicted, full.right), full.right.size, band)
    return {
        "num_samples": num_samples,
        "confidence": confidence,
        "by_num_samples": [
            {"num_samples": m, **_correctness_at(decided, errors, confidence, m, picks[decided.right.size])}
            for m, decided in sorted(fitted.decided.items())
        ],
        "diagram": diagram,
        "risk_coverage": risk_coverage(full.selector.counts, confidence) if full.selector else [],
        "promises": promises_part(full, errors, confidence, num_samples),
        "meaning": PROMISE_MEANING,
    }


def _correctness_at(
    decided: OperatingPoint, errors: list[float], confidence: float, num_samples: int, picks: ResampleCounts
) -> Part:
    """Return the figures of P(correct) for one number of answers, from out-of-fold predictions.

    right, wrong: number of verdicts. features: features of the model, empty without a model; why_none: the
    reason. base_*: scores of the base rate as a constant prediction; null if all verdicts are of one kind.
    promises: one per target error. lowest: the promise of the lowest possible error, null if none is
    possible.
    """
    ours, base, held_out = decided.fit.scores, decided.fit.base_rate, decided.fit.held_out
    lowest = None if decided.selector is None else lowest_error(decided.selector.counts, confidence)
    return {
        "right": decided.fit.num_right,
        "wrong": decided.fit.num_wrong,
        "features": list(decided.fit.model.features) if decided.fit.model else [],
        "log_loss": ours.log_loss if ours else None,
        "base_log_loss": base.log_loss if base else None,
        "brier": ours.brier if ours else None,
        "base_brier": base.brier if base else None,
        "auroc": estimate(math.nan) if held_out is None else ranking(picks, held_out, decided.right),
        "why_none": decided.fit.why_none,
        "promises": promises_part(decided, errors, confidence, num_samples),
        "lowest": None if lowest is None else promises_part(decided, [lowest], confidence, num_samples)[0],
    }


def risk_coverage(counts: SelectiveCounts, confidence: float) -> list[Part]:
    """Return the error among the answers let through, with its bound, by threshold, strictest first."""
    bounds = simultaneous_bounds(counts, confidence)
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


def promises_part(
    decided: OperatingPoint, target_errors: list[float], confidence: float, num_samples: int
) -> list[Part]:
    """Return the promise for each target error, in numbers and in words; an empty list without a model.

    threshold: on P(correct), null if the target cannot be promised. lowest_error: the lowest error that can
    be promised instead, null if none can. answered, wrong, coverage: of the counted rows that the threshold
    lets through.
    """
    if decided.selector is None:
        return []
    counts = decided.selector.counts
    return [
        {
            "target_error": made.target_error,
            "threshold": made.threshold,
            "answered": made.answered,
            "wrong": made.wrong,
            "coverage": made.coverage,
            "lowest_error": made.lowest_error,
            "text": format_promise(
                made, num_samples, of_claims=decided.groups is not None, counts_both=decided.counts_both
            ),
        }
        for made in (promise(counts, target, confidence) for target in target_errors)
    ]


def format_promise(made: Promise, num_samples: int, *, of_claims: bool, counts_both: bool = False) -> str:
    """Return the promise as a sentence. If it cannot be made, name the lowest error that can be promised."""
    sure = f"with {answers_drawn(num_samples)} and {made.confidence:.0%} confidence".replace("%", " %")
    target = percent(made.target_error)
    if made.threshold is not None:
        texts = "claims let through, one of each answer at random," if of_claims else "answers let through"
        like = f"on questions like its rows{' mixed with the bundled ones' if counts_both else ''}"
        return f"{sure[0].upper()}{sure[1:]}, at most {target} of the {texts} are wrong, {like}."
    if made.lowest_error is None:
        return f"No error can be promised {sure}: these rows are too few."
    lowest = percent(made.lowest_error)
    return f"An error of at most {target} cannot be promised {sure}; the lowest that can be is {lowest}."


# How many answers to draw.


def answers_part(context: CrossValidated) -> Part:
    """Return a row per number of answers and map of P(correct), and the recommended number of answers.

    loss: log loss of the verdicts. loss_gap: loss minus the loss with all answers, on the same resamples of
    the prompts, without refitting; null for all answers, and if another text is judged.
    tokens: per question. recommended, recommended_map: null without a recommendation. recommendation: a
    sentence.
    """
    judged = context.by_num_samples
    random, number = context.rng(Stream.ANSWERS), context.resamples.answers
    resamples = ResampleCounts.of(len(context.rows), random, number, context.rows.groups)

    def mean(values: Floats) -> dict[str, float | None]:
        return estimate(float(values.mean()), percentile_interval(resamples.means(values)))

    sentence, chosen = context.recommendation
    full = {score.map: score.losses for score in judged[-1].scored}
    rows = []
    for at in judged:
        for score in at.scored:
            compared = full.get(score.map) if at.same_text and at is not judged[-1] else None
            rows.append(
                {
                    "num_samples": at.num_samples,
                    "map": score.map,
                    "tokens": at.tokens,
                    "loss": mean(score.losses),
                    "loss_gap": None if compared is None else mean(score.losses - compared),
                    "brier": mean(score.squares),
                    "auroc": ranking(resamples, score.values, at.right),
                }
            )
    return {
        "recommendation": sentence,
        "recommended": chosen.num_samples if chosen else None,
        "recommended_map": chosen.map if chosen else None,
        "rows": rows,
    }
