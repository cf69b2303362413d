"""The report of a calibration, as it is stored, sent as JSON and drawn as a page; figures of an evaluation.

Numbers are floats; what cannot be computed (an AUROC of one class) is null, never NaN. Figures with `value`,
`low` and `high` have a 95 % interval of a bootstrap over prompts, null where none was computed. Risks and
entropies are in nats. Names of maps: "raw" (no calibration), "temperature" (the paper's), "depolarized"
(ours), "evidence" (ours, by the log-probabilities of the answers; absent where rows have none), "active" (the
one that was active for the same fingerprint when this one was fitted; absent without one).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import PROMISE_MEANING, Calibration, Gains, decide_activation
from service.calibration.fitting import DecidedAt, Fitted, FittedMaps, Stream, rng
from service.calibration.labels import FullRows
from service.calibration.rows import DevRow
from service.jobs.model import JobOptions
from service.report.diagnostics import CrossValidated, EvaluationContext, answers_part, ranking
from service.report.words import (
    MIN_KEPT,
    about_data,
    about_fit,
    about_gain,
    about_verdicts,
    estimate,
    finite,
    opening,
    poor_rows,
)
from service.scoring.judging import answers_drawn, percent
from service.scoring.score import Target
from service.spectral.algorithm1 import algorithm1
from service.spectral.correctness_model import log_losses
from service.spectral.dev_set import mean_entropy, risk
from service.spectral.reliability import (
    ConsistencyBand,
    Null,
    ReliabilityDiagram,
    accuracy_rejection,
    label_band,
    projection_brier,
    projection_null,
    reliability_diagram,
)
from service.spectral.resampling import DEFAULT, ResampleCounts, Resamples
from service.spectral.selective import (
    Promise,
    SelectiveCounts,
    lowest_error,
    promise,
    simultaneous_bounds,
)
from service.spectral.spectrum import TemperatureMap

Floats = NDArray[np.float64]
Part = dict[str, Any]

CURVE_POINTS = 41  # of an accuracy-rejection curve
MAX_REFUSED = 50  # listed; all are counted
TEMPERATURES = np.geomspace(0.05, 50.0, 61)  # from bound to bound of the fit
TARGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def make_report(
    fitted: Fitted,
    calibration: Calibration,
    options: JobOptions,
    target: Target,
    *,
    num_rows: int,
    active: Calibration | None = None,
    copies: int = 0,
    refused: Sequence[DevRow] = (),
    resamples: Resamples = DEFAULT,
) -> Part:
    """Return the report of a calibration fitted on the rows. Blocking: seconds.

    target: what decisions keep where nobody names another; num_rows: of the file; copies: rows left out since
    another asks the same; refused: by the LLM server, for good, while it answered others.
    """
    context = CrossValidated(fitted, seed=options.seed, resamples=resamples)
    gains = gains_of(calibration, active, context)
    data = data_part(fitted.rows, calibration, num_rows, copies, refused)
    activated, reason = decide_activation(
        calibration,
        active,
        options.activate,
        gains,
        has_evidence="evidence" in fitted.maps.risks,
        refused=len(refused),
        num_rows=num_rows,
        doubts=poor_rows(data, fitted.rows.right),
    )
    if options.corrects:
        reason += f" Its rows are those of {options.corrects} with corrected verdicts."
    report: Part = {
        "version": 1,
        "calibration": calibration_part(calibration),
        "data": data,
        **figures(context),
        "parameters": [
            {
                "num_samples": m,
                "temperature": one.temperature,
                "depolarization": None if calibration.method == "temperature" else one.depolarization,
            }
            for m, one in sorted(calibration.parameters.items())
        ],
        # Held-out rows, paired by prompt, minus `against`, an id, null for raw scores; below 0: better.
        "decision": {
            "asked": options.activate,
            "activated": activated,
            "against": gains.against,
            "brier_difference": estimate(gains.brier.value, gains.brier),
            "difference": estimate(gains.risk.value, gains.risk),
            "loss_difference": estimate(gains.loss.value, gains.loss),
            "reason": reason,
        },
        "correctness": correctness_part(fitted, calibration.num_samples, options.seed, target, resamples),
    }
    report["opening"] = opening(report, target.error)
    rows = fitted.rows
    references = [rows.material.rows[i].references for i in rows.material.full]
    report["warnings"] = [
        *about_data(data, rows.right),
        *about_verdicts(rows.verdicts, references),
        *about_fit(fitted.maps.fits[fitted.method]),
        *about_gain(gains),
    ]
    if calibration.evidence:
        report["evidence_parameters"] = calibration.evidence_table()
    return report


def gains_of(calibration: Calibration, active: Calibration | None, context: CrossValidated) -> Gains:
    """Return what the calibration costs on held-out rows minus what the active one does, or raw scores.

    Of P(correct), each row's is by a model without its fold; who tells none tells the share of right answers
    among other rows.
    """
    method, rival = calibration.method, "active" if active else "raw"
    known = context.first_answers(calibration.num_samples)
    by = "evidence" if method == "evidence" else "depolarized"
    ours = [one.losses for one in known.scored if (one.score, one.map) == ("probability_correct", by)]
    of_active = None if active is None else context.correct_by(active)
    theirs = known.base if of_active is None else log_losses(of_active, known.right)
    risks, gaps = context.risks, context.squared_gaps(method)
    over_base = [context.difference(one, known.base) for one in ours]
    return Gains(
        active.id if active else None,
        context.difference(risks[method], risks[rival]),
        context.difference(gaps, context.squared_gaps(rival)),
        context.difference(ours[0] if ours else known.base, theirs),
        informative=float(gaps.mean()) < context.constant_brier or any(one.high < 0 for one in over_base),
    )


def calibration_part(calibration: Calibration) -> Part:
    """Return the calibration itself, with its headline parameters.

    For "evidence", `temperature` and `depolarization` are those of answers without log-probabilities, and
    `evidence` those of answers with them.
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
    fitted: FullRows, calibration: Calibration, num_rows: int, copies: int, refused: Sequence[DevRow]
) -> Part:
    """Return what it was fitted on.

    rows: in the file; usable: with a reference and two answers or more, one for each question; rows_full:
    those with `num_samples` answers, on which headline and evidence rest. truncated, empty: shares of all
    answers. correct_from: who says what is right. claims: of the full rows, where those are calibrated;
    accuracy is theirs then.
    """
    material = fitted.material
    rows, full = material.rows, len(fitted)
    if material.groups is not None:
        # Of each answer one claim stands for the row.
        rows = [rows[i] for i in np.unique(material.groups, return_index=True)[1]]
        full = np.unique(material.groups[material.full]).size
    draws = [draw for row in rows for draw in row.draws]
    part = {
        "rows": num_rows,
        "usable": len(rows),
        "copies": copies,
        "rows_full": full,
        "num_samples": material.num_samples,
        "drawn_by": "service" if calibration.fingerprint.source == "service" else "caller",
        "answers": len(draws),
        "distinct_mean": float(np.mean([len({draw.text for draw in row.draws}) for row in rows])),
        "truncated": sum(d.truncated for d in draws) / len(draws),
        "empty": sum(not d.text for d in draws) / len(draws),
        "references_mean": float(np.mean([len(one.references) for one in rows])),
        "correct_from": fitted.source,
        "accuracy": float(fitted.right.mean()),
        "refused": {
            "count": len(refused),
            "rows": [{"line": one.line, "reason": one.refused or ""} for one in refused[:MAX_REFUSED]],
        },
    }
    return part if material.groups is None else part | {"claims": len(fitted)}


# The maps.


def fit_parts(fitted: FittedMaps) -> dict[str, Part]:
    """Return every map as fitted on all full rows, by name.

    cv_risk: mean out-of-fold risk; at_bound: parameters whose optimum sits on a bound; stationarity_gap: a
    check of convergence (about 0), not of calibration. depolarization: null for "temperature", and for
    "evidence", which has an intercept and a slope instead: g is each prompt's own.
    """
    parts = dict[str, Part]()
    for method, fit in fitted.fits.items():
        spread = fitted.bootstraps[method].intervals
        parts[method] = {
            "depolarization": None,
            **{name: estimate(getattr(fit.map, name), one) for name, one in spread.items()},
            "risk": fit.risk,
            "cv_risk": float(fitted.risks[method].mean()),
            "mean_entropy": fit.mean_entropy,
            "at_bound": list(fit.at_bound),
            "stationarity_gap": fit.stationarity_gap,
        }
    return parts


def figures(context: EvaluationContext) -> Part:
    """Return the maps as fitted, and every figure of what they serve, on the prompts of the context.

    fits: every map; unfitted: why a map could not be fitted, by name; served: one row per map, raw first;
    curves: reliability diagrams and accuracy-rejection by map, the paper's map over T; answers: figures by
    number of answers.
    """
    why = context.dev.rows.why_no_evidence() or context.test.rows.why_no_evidence()
    rows = list[Part]()
    curves: Part = {"projection": {}, "algorithm1": {}, "correctness": {}}
    for name in context.served:
        row, diagrams = served_figures(context, name)
        rows.append(row)
        for kind, found in diagrams.items():
            curves[kind][name] = found
    right = context.test.rows.right
    curves["rejection"] = [rejection(name, one.lambda_max, right) for name, one in context.served.items()]
    curves["temperature"] = temperature_curve(context)
    return {
        "fits": fit_parts(context.fitted),
        "unfitted": {"evidence": why} if why else {},
        "served": rows,
        "curves": curves,
        "answers": answers_part(context),
    }


def served_figures(context: EvaluationContext, name: str) -> tuple[Part, dict[str, list[Part]]]:
    """Return the figures of one map on prompts it was not fitted on, and its three reliability diagrams.

    Lower is better but for the AUROCs (right against wrong) and the area under the accuracy-rejection curve.
    risk: that of "raw" is charged with null eigenvalues of eps, since it gives them 0, which would make it
    infinite. An ECE is above 0 under calibration, too: it counts by its null alone. projection_null:
    residuals of like prompts resampled. algorithm1_drawn: references drawn from the served spectrum; distance
    from it is mostly what no map of eigenvalues can mend. algorithm1_rescaled: real references with squared
    coordinates rescaled to the served spectrum; distance from it is the map's. cluster_sizes: of the clusters
    that Algorithm 1 used; singletons: prompts that it ignored.
    """
    served, test, worlds = context.served[name], context.test, context.resamples.band
    scores, right = served.lambda_max, test.rows.right
    projection = reliability_diagram(scores, test.c1)
    null = projection_null(scores, test.c1, context.rng(Stream.PROJECTION), num_draws=worlds)
    clusters, both_nulls = context.algorithm1(served)
    paper = algorithm1(clusters, test.targets)
    correctness = reliability_diagram(scores, right)
    band = label_band(scores, context.rng(Stream.CORRECTNESS), num_draws=worlds)
    row = {
        "map": name,
        "risk": float(served.risks.mean()),
        "projection_ece": projection.ece,
        "projection_brier": projection_brier(scores, test.c1),
        "algorithm1_ece": finite(paper.ece),
        "auroc_lambda_max": context.auroc(scores),
        "auroc_entropy": context.auroc(-served.entropy),
        "rejection_area": finite(accuracy_rejection(scores, right).area),
        "mean_lambda_max": float(scores.mean()),
        "mean_entropy": float(served.entropy.mean()),
        "projection_null": null_part(null),
        "algorithm1_drawn": null_part(both_nulls.drawn),
        "algorithm1_rescaled": null_part(both_nulls.rescaled),
        "cluster_sizes": clusters.cluster_sizes.tolist(),
        "singletons": clusters.singletons,
    }
    return row, {
        "projection": bins(projection, len(test), null.band),
        "algorithm1": bins(paper, len(test), both_nulls.drawn.band),
        "correctness": bins(correctness, len(test), band),
    }


def temperature_curve(context: EvaluationContext) -> Part:
    """Return mean risk and mean entropy (full space, the paper's map) against T; they meet at the optimum."""
    dev, maps = context.dev.rows.dev, [TemperatureMap(float(t)) for t in TEMPERATURES]
    return {
        "temperatures": TEMPERATURES.tolist(),
        "risk": [risk(map_, dev) for map_ in maps],
        "entropy": [mean_entropy(map_, dev) for map_ in maps],
        "optimum": context.fitted.fits["temperature"].map.temperature,
    }


def rejection(name: str, scores: Floats, right: NDArray[np.bool_]) -> Part:
    """Return the accuracy of the answers kept when a share of the least certain ones is rejected.

    scores: (n,), higher = more certain. It ends where `MIN_KEPT` answers are left.
    """
    curve = accuracy_rejection(scores, right)
    # Of few prompts several points are one.
    points = np.linspace(0, max(scores.size - MIN_KEPT, 0), CURVE_POINTS)
    shown = np.unique(points.astype(int))
    return {
        "map": name,
        "rejected": curve.rejected[shown].tolist(),
        "accuracy": curve.accuracy[shown].tolist(),
    }


def null_part(null: Null) -> Part:
    """Return what a figure reads under calibration: mean and 95 % band over `draws` worlds.

    p_value: share of worlds that read as much as was observed, (1 + those) / (1 + draws).
    """
    band = null.band
    return {
        "mean": finite(band.ece_mean),
        "low": finite(band.ece_low),
        "high": finite(band.ece_high),
        "p_value": finite(null.p_value),
        "draws": band.num_draws,
    }


def bins(diagram: ReliabilityDiagram, size: int, band: ConsistencyBand) -> list[Part]:
    """Return the bins of a diagram of `size` prompts that have a target.

    band_low, band_high: where the observed mean lies under calibration (95 %), as the diagram's null has it.
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


# P(correct), and what thresholds on it promise.


def correctness_part(
    fitted: Fitted, num_samples: int, seed: int, target: Target, resamples: Resamples = DEFAULT
) -> Part:
    """Return whether answers are right, for a calibration of so many answers. Blocking: a second.

    diagram, risk_coverage, promises: with `num_samples` answers, rows predicted out of their fold; empty
    where there is no model for them. target: what decisions keep by default, and so one of the promises.
    """
    full, confidence = fitted.decided[num_samples], target.confidence
    # The same for every number, so that a table can hold them.
    errors = sorted({*targets(1 - float(full.right.mean())), target.error})
    # Without an answer drawn there may be fewer rows.
    picks = {
        one.right.size: ResampleCounts.picked(
            one.right.size, rng(seed, Stream.AUROC), resamples.auroc, one.groups
        )
        for one in fitted.decided.values()
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
            {"num_samples": m, **_correctness_at(one, errors, confidence, m, picks[one.right.size])}
            for m, one in sorted(fitted.decided.items())
        ],
        "diagram": diagram,
        "risk_coverage": risk_coverage(full.selector.counts, confidence) if full.selector else [],
        "promises": promises_part(full, errors, confidence, num_samples),
        "meaning": PROMISE_MEANING,
    }


def targets(base_error: float) -> list[float]:
    """Return the target errors of a table; the base rate's error is one where it is above the others.

    base_error: the share of wrong ones among all rows.
    """
    rounded = round(base_error, 2)
    return [*TARGETS, *([rounded] if TARGETS[-1] < rounded < 1 else [])]


def _correctness_at(
    one: DecidedAt, errors: list[float], confidence: float, num_samples: int, picks: ResampleCounts
) -> Part:
    """Return the model of P(correct) with one number of answers, each row judged by one without its fold.

    right, wrong: verdicts. features: those that the model takes; empty where there is none: why_none says
    why. base_*: of the base rate, which says the same of every row; null where all verdicts are of one kind.
    promises: for each target error; lowest: for the lowest that can be promised, null where none can.
    """
    ours, base, held_out = one.fit.scores, one.fit.base_rate, one.fit.held_out
    lowest = None if one.selector is None else lowest_error(one.selector.counts, confidence)
    return {
        "right": one.fit.num_right,
        "wrong": one.fit.num_wrong,
        "features": list(one.fit.model.features) if one.fit.model else [],
        "log_loss": ours.log_loss if ours else None,
        "base_log_loss": base.log_loss if base else None,
        "brier": ours.brier if ours else None,
        "base_brier": base.brier if base else None,
        "auroc": estimate(math.nan) if held_out is None else ranking(picks, held_out, one.right),
        "why_none": one.fit.why_none,
        "promises": promises_part(one, errors, confidence, num_samples),
        "lowest": None if lowest is None else promises_part(one, [lowest], confidence, num_samples)[0],
    }


def risk_coverage(counts: SelectiveCounts, confidence: float) -> list[Part]:
    """Return the error among the answers let through by threshold, strictest first, with its bound."""
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
    decided: DecidedAt, target_errors: list[float], confidence: float, num_samples: int
) -> list[Part]:
    """Return what can be promised for each target error, in numbers and in words; nothing without a model.

    threshold: on P(correct), null where the target cannot be promised; then lowest_error is the lowest that
    can be, null where none can. answered, wrong, coverage: of the rows counted that it lets through.
    """
    if decided.selector is None:
        return []
    counts = decided.selector.counts
    return [
        {
            "target_error": one.target_error,
            "threshold": one.threshold,
            "answered": one.answered,
            "wrong": one.wrong,
            "coverage": one.coverage,
            "lowest_error": one.lowest_error,
            "text": format_promise(one, num_samples, of_claims=decided.groups is not None),
        }
        for one in (promise(counts, target, confidence) for target in target_errors)
    ]


def format_promise(made: Promise, num_samples: int, *, of_claims: bool) -> str:
    """Return the promise for a number of answers as a sentence, or that it cannot be made, and which can."""
    sure = f"with {answers_drawn(num_samples)} and {made.confidence:.0%} confidence".replace("%", " %")
    target = percent(made.target_error)
    if made.threshold is not None:
        what = "claims let through, one of each answer at random," if of_claims else "answers let through"
        like = "on questions like its rows"
        return f"{sure[0].upper()}{sure[1:]}, at most {target} of the {what} are wrong, {like}."
    if made.lowest_error is None:
        return f"No error can be promised {sure}: these rows are too few."
    lowest = percent(made.lowest_error)
    return f"An error of at most {target} cannot be promised {sure}; the lowest that can be is {lowest}."
