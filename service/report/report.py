"""The report of a fit: the calibration, the fits it was chosen from, and diagnostics on rows held out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import PROMISE_MEANING, Calibration
from service.calibration.fitting import DecidedAt, Fitted, Stream, rng, why_no_evidence
from service.calibration.labels import Labels
from service.calibration.material import Material
from service.calibration.promotion import Gains, decide
from service.calibration.rows import StoredRow
from service.jobs.model import JobOptions
from service.report.diagnostics import (
    CrossValidated,
    EvaluationContext,
    make_split,
)
from service.report.first_answers import answers_part, sizes
from service.report.model import (
    Bin,
    CalibrationPart,
    CorrectnessAt,
    CorrectnessPart,
    Curves,
    DataPart,
    Decision,
    Estimate,
    EvidenceAt,
    Figures,
    FitPart,
    NullPart,
    ParametersAt,
    PromiseAt,
    RejectionCurve,
    Report,
    RiskAt,
    ServedRow,
    TemperatureCurve,
    estimate,
    finite,
)
from service.report.words import about_data, about_fit, about_gain, about_verdicts, opening
from service.scoring.judging import percent
from service.scoring.score import Target
from service.spectral.correctness import accuracy_rejection, bootstrap_auroc
from service.spectral.correctness_model import log_losses
from service.spectral.dev_set import mean_entropy, risk
from service.spectral.evidence import EvidenceFit
from service.spectral.fit import DepolarizedFit, TemperatureFit
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.reliability import (
    ConsistencyBand,
    Null,
    ReliabilityDiagram,
    label_band,
    projection_brier,
    reliability_diagram,
)
from service.spectral.resampling import DEFAULT, Interval, ResampleCounts, Resamples
from service.spectral.selective import (
    Promise,
    SelectiveCounts,
    lowest_error,
    promise,
    simultaneous_bounds,
)

Floats = NDArray[np.float64]

MAX_REFUSED = 50  # listed; all are counted
TARGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
TEMPERATURES = np.geomspace(0.05, 50.0, 61)  # from bound to bound of the fit
CURVE_POINTS = 41  # a plot shows no more, however many prompts


@dataclass(frozen=True, slots=True, eq=False)
class FinishedFit:
    """Everything a finished fit is about.

    target: what decisions keep where nobody names another; copies: rows left out since another asks the same.
    """

    calibration: Calibration
    options: JobOptions
    material: Material
    fitted: Fitted
    active: Calibration | None
    num_rows: int
    target: Target
    copies: int = 0
    refused: Sequence[StoredRow] = ()


def make_report(outcome: FinishedFit, resamples: Resamples = DEFAULT) -> Report:
    """Return the report. Blocking: seconds."""
    rows = make_split(outcome.material, outcome.fitted.dev)
    context = CrossValidated(rows, outcome.fitted, seed=outcome.options.seed, resamples=resamples)
    data, calibration = _data(outcome, rows.labels), outcome.calibration
    gains = gains_of(calibration, outcome.active, context)
    judged = [outcome.material.rows[i] for i in outcome.material.full]
    part, shared = calibration_part(calibration), figures(context)
    right = correctness_part(
        outcome.fitted, calibration.num_samples, outcome.options.seed, outcome.target, resamples
    )
    report: Report = {
        "version": 1,
        "opening": opening(part, data, shared["served"], right, shared["answers"], outcome.target.error),
        "calibration": part,
        "data": data,
        "fits": shared["fits"],
        "unfitted": shared["unfitted"],
        "served": shared["served"],
        "curves": shared["curves"],
        "answers": shared["answers"],
        "parameters": parameters_part(calibration),
        "decision": decision_part(outcome, gains, context),
        "correctness": right,
        "warnings": [
            *about_data(data, rows.labels.right),
            *about_verdicts(rows.labels.verdicts, [row.row.references for row in judged]),
            *about_fit(chosen_fit(outcome.fitted)),
            *about_gain(gains),
        ],
    }
    table = evidence_table(calibration)
    if table:
        report["evidence_parameters"] = table
    return report


def gains_of(calibration: Calibration, active: Calibration | None, context: CrossValidated) -> Gains:
    """Return what the calibration costs on held-out rows minus what the active one does, or raw scores.

    Of P(correct), each row's is by a model without its fold; who tells none tells the share of right answers
    among other rows.
    """
    method, rival = calibration.method, "active" if active else "raw"
    known = context.first_answers(calibration.num_samples)
    ours = known.correct.get("evidence" if method == "evidence" else "depolarized", known.base)
    of_active = None if active is None else context.correct_by(active)
    losses = [log_losses(one, known.right) for one in (ours, known.base if of_active is None else of_active)]
    risks = context.fitted.risks
    return Gains(
        active.id if active else None,
        context.difference(risks[method], risks[rival]),
        context.difference(context.squared_gaps(method), context.squared_gaps(rival)),
        context.difference(losses[0], losses[1]),
    )


def decision_part(outcome: FinishedFit, gains: Gains, context: CrossValidated) -> Decision:
    """Return whether the calibration is activated, and why."""
    activated, reason = decide(
        outcome.calibration,
        outcome.active,
        outcome.options.activate,
        gains,
        has_evidence="evidence" in context.fitted.risks,
        refused=len(outcome.refused),
        num_rows=outcome.num_rows,
    )
    risk, brier, loss = (
        estimate(gap.value, gap.low, gap.high) for gap in (gains.risk, gains.brier, gains.loss)
    )
    return {
        "asked": outcome.options.activate,
        "activated": activated,
        "against": gains.against,
        "brier_difference": brier,
        "difference": risk,
        "loss_difference": loss,
        "reason": reason,
    }


def calibration_part(calibration: Calibration) -> CalibrationPart:
    """Return the calibration itself, with its headline parameters."""
    headline, table = calibration.headline(), evidence_table(calibration)
    part: CalibrationPart = {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": None if calibration.method == "temperature" else headline.depolarization,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": dict(calibration.fingerprint.described()),
    }
    return {**part, "evidence": table[-1]} if table else part


def evidence_table(calibration: Calibration) -> list[EvidenceAt]:
    """Return the evidence map of every number of answers; nothing for other methods."""
    return [
        {
            "num_samples": m,
            "temperature": map_.temperature,
            "evidence_intercept": map_.intercept,
            "evidence_slope": map_.slope,
        }
        for m, map_ in sorted(calibration.evidence.items())
    ]


def parameters_part(calibration: Calibration) -> list[ParametersAt]:
    """Return the parameters of every number of answers that need no log-probabilities."""
    depolarized = calibration.method != "temperature"
    return [
        {
            "num_samples": m,
            "temperature": p.temperature,
            "depolarization": p.depolarization if depolarized else None,
        }
        for m, p in sorted(calibration.parameters.items())
    ]


def chosen_fit(fitted: Fitted) -> TemperatureFit | DepolarizedFit | EvidenceFit:
    """Return the fit of the map that was chosen."""
    if fitted.method != "evidence":
        return fitted.maps.fits[fitted.method]
    assert fitted.maps.evidence is not None
    return fitted.maps.evidence.fit


def fit_parts(context: EvaluationContext) -> dict[str, FitPart]:
    """Return every map as fitted, by name, with its intervals and its cross-validated risk."""
    parts: dict[str, FitPart] = {}
    fitted, risks = context.fitted, context.fitted.risks
    for method, fit in fitted.fits.items():
        spread, g = fitted.bootstraps[method], None
        if isinstance(fit.map, DepolarizedMap) and spread.depolarization is not None:
            g = _estimate(fit.map.depolarization, spread.depolarization)
        parts[method] = _fit_part(fit, spread.temperature, g, risks[method])
    if evidence := fitted.evidence:
        map_, spreads = evidence.fit.map, evidence.bootstrap
        part = _fit_part(evidence.fit, spreads.temperature, None, risks["evidence"])
        part["intercept"] = _estimate(map_.intercept, spreads.intercept)
        part["slope"] = _estimate(map_.slope, spreads.slope)
        parts["evidence"] = part
    return parts


def _fit_part(
    fit: TemperatureFit | DepolarizedFit | EvidenceFit,
    temperature: Interval,
    depolarization: Estimate | None,
    held_out: Floats,
) -> FitPart:
    return {
        "temperature": _estimate(fit.map.temperature, temperature),
        "depolarization": depolarization,
        "risk": fit.risk,
        "cv_risk": float(held_out.mean()),
        "mean_entropy": fit.mean_entropy,
        "at_bound": list(fit.at_bound),
        "stationarity_gap": fit.stationarity_gap,
    }


def _estimate(value: float, spread: Interval) -> Estimate:
    return estimate(value, spread.low, spread.high)


def correctness_part(
    fitted: Fitted, num_samples: int, seed: int, target: Target, resamples: Resamples = DEFAULT
) -> CorrectnessPart:
    """Return whether answers are right, for a calibration of so many answers. Blocking: a second.

    target: what decisions keep by default, and so one of the promises.
    """
    at = fitted.decided
    full = at[num_samples]
    # The same for every number, so that a table can hold them.
    errors = sorted({*targets(1 - float(full.right.mean())), target.error})
    confidence = target.confidence
    return {
        "num_samples": num_samples,
        "confidence": confidence,
        "by_num_samples": [_at(m, one, errors, confidence, seed, resamples) for m, one in sorted(at.items())],
        "diagram": _diagram(full, seed, resamples),
        "risk_coverage": risk_coverage(full.selector.counts, confidence) if full.selector else [],
        "promises": promises_part(full, errors, confidence),
        "meaning": PROMISE_MEANING,
    }


def targets(base_error: float) -> list[float]:
    """Return the target errors of a table; the base rate's error is one where it is above the others.

    base_error: the share of wrong ones among all rows.
    """
    rounded = round(base_error, 2)
    return [*TARGETS, *([rounded] if TARGETS[-1] < rounded < 1 else [])]


def _at(
    num_samples: int,
    one: DecidedAt,
    errors: list[float],
    confidence: float,
    seed: int,
    resamples: Resamples,
) -> CorrectnessAt:
    ours, base, auroc = one.fit.scores, one.fit.base_rate, estimate(math.nan)
    if one.fit.held_out is not None:
        random = rng(seed, Stream.AUROC)
        ranking = bootstrap_auroc(
            one.fit.held_out, one.right, random, num_resamples=resamples.auroc, groups=one.groups
        )
        auroc = estimate(ranking.value, ranking.low, ranking.high)
    return {
        "num_samples": num_samples,
        "right": one.fit.num_right,
        "wrong": one.fit.num_wrong,
        "features": list(one.fit.model.features) if one.fit.model else [],
        "log_loss": ours.log_loss if ours else None,
        "base_log_loss": base.log_loss if base else None,
        "brier": ours.brier if ours else None,
        "base_brier": base.brier if base else None,
        "auroc": auroc,
        "why_none": one.fit.why_none,
        "promises": promises_part(one, errors, confidence),
        "lowest": lowest_part(one, confidence),
    }


def _diagram(one: DecidedAt, seed: int, resamples: Resamples) -> list[Bin]:
    """Return the reliability diagram of P(correct), each row predicted by the model of the other folds."""
    predicted = one.fit.held_out
    if one.selector is None or predicted is None:
        return []
    band = label_band(predicted, rng(seed, Stream.CORRECTNESS), num_draws=resamples.band)
    return bins(reliability_diagram(predicted, one.right), one.right.size, band)


def risk_coverage(counts: SelectiveCounts, confidence: float) -> list[RiskAt]:
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


def promises_part(decided: DecidedAt, target_errors: list[float], confidence: float) -> list[PromiseAt]:
    """Return what can be promised for each target error, in numbers and in words; nothing without a model."""
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
            "text": format_promise(one, of_claims=decided.groups is not None),
        }
        for one in (promise(counts, target, confidence) for target in target_errors)
    ]


def lowest_part(decided: DecidedAt, confidence: float) -> PromiseAt | None:
    """Return what the lowest error lets through that can be promised at all; None where none can."""
    lowest = None if decided.selector is None else lowest_error(decided.selector.counts, confidence)
    return None if lowest is None else promises_part(decided, [lowest], confidence)[0]


def format_promise(made: Promise, *, of_claims: bool) -> str:
    """Return the promise as a sentence, or that it cannot be made, and which can."""
    sure = f"with {made.confidence:.0%} confidence".replace("%", " %")
    target = percent(made.target_error)
    if made.threshold is not None:
        what = "claims let through, one of each answer at random," if of_claims else "answers let through"
        like = "on questions like those of the dev set"
        return f"{sure.capitalize()}, at most {target} of the {what} are wrong, {like}."
    if made.lowest_error is None:
        return f"No error can be promised {sure}: these rows are too few."
    lowest = percent(made.lowest_error)
    return f"An error of at most {target} cannot be promised {sure}; the lowest that can be is {lowest}."


def figures(context: EvaluationContext) -> Figures:
    """Return the maps as fitted, and every figure of what they serve, on the prompts of the context."""
    size, number = len(context.test), context.resamples.answers
    why = why_no_evidence(context.dev.material) or why_no_evidence(context.test.material)
    alone = context.no_answers()
    judged = [] if alone is None else [alone]
    judged += [context.first_answers(m) for m in sizes(context.test.material.num_samples)]
    return {
        "fits": fit_parts(context),
        "unfitted": {"evidence": why} if why else {},
        "served": [_served_row(context, name) for name in context.served],
        "curves": curves(context),
        "answers": answers_part(
            judged, ResampleCounts.of(size, context.rng(Stream.ANSWERS), number, context.groups)
        ),
    }


def _served_row(context: EvaluationContext, name: str) -> ServedRow:
    served, diagrams = context.served[name], context.diagnostics[name]
    return {
        "map": name,
        "risk": float(served.risks.mean()),
        "projection_ece": diagrams.projection.ece,
        "projection_brier": projection_brier(served.lambda_max, context.test.c1),
        "algorithm1_ece": finite(diagrams.algorithm1.ece),
        "auroc_lambda_max": auroc_part(context, served.lambda_max),
        "auroc_entropy": auroc_part(context, -served.entropy),
        "rejection_area": finite(accuracy_rejection(served.lambda_max, context.test.labels.right).area),
        "mean_lambda_max": float(served.lambda_max.mean()),
        "mean_entropy": float(served.entropy.mean()),
        "projection_null": null_part(diagrams.projection_null),
        "algorithm1_drawn": null_part(diagrams.algorithm1_nulls.drawn),
        "algorithm1_rescaled": null_part(diagrams.algorithm1_nulls.rescaled),
        "cluster_sizes": diagrams.clusters.cluster_sizes.tolist(),
        "singletons": diagrams.clusters.singletons,
    }


def auroc_part(context: EvaluationContext, scores: Floats) -> Estimate:
    """Return the AUROC of scores (n,) with its interval, higher = more certain."""
    ranking = context.auroc(scores)
    return estimate(ranking.value, ranking.low, ranking.high)


def null_part(null: Null) -> NullPart:
    """Return the null of an ECE."""
    band = null.band
    return {
        "mean": finite(band.ece_mean),
        "low": finite(band.ece_low),
        "high": finite(band.ece_high),
        "p_value": finite(null.p_value),
        "draws": band.num_draws,
    }


def curves(context: EvaluationContext) -> Curves:
    """Return the numbers behind every plot."""
    size, right, by_map = len(context.test), context.test.labels.right, context.diagnostics
    return {
        "temperature": temperature_curve(context),
        "projection": {name: bins(d.projection, size, d.projection_null.band) for name, d in by_map.items()},
        "algorithm1": {
            name: bins(d.algorithm1, size, d.algorithm1_nulls.drawn.band) for name, d in by_map.items()
        },
        "correctness": {name: bins(d.correctness, size, d.correctness_band) for name, d in by_map.items()},
        "rejection": [rejection(name, one.lambda_max, right) for name, one in context.served.items()],
    }


def bins(diagram: ReliabilityDiagram, size: int, band: ConsistencyBand) -> list[Bin]:
    """Return the bins of a diagram of `size` prompts that have a target."""
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


def temperature_curve(context: EvaluationContext) -> TemperatureCurve:
    """Return risk and entropy of the paper's map on dev, over a log grid of T."""
    dev, maps = context.dev.dev, [TemperatureMap(float(t)) for t in TEMPERATURES]
    return {
        "temperatures": TEMPERATURES.tolist(),
        "risk": [risk(map_, dev) for map_ in maps],
        "entropy": [mean_entropy(map_, dev) for map_ in maps],
        "optimum": context.fitted.fits["temperature"].map.temperature,
    }


def rejection(name: str, scores: Floats, right: NDArray[np.bool_]) -> RejectionCurve:
    """Return the accuracy-rejection curve of scores (n,), higher = more certain."""
    curve = accuracy_rejection(scores, right)
    # Of few prompts several points are one.
    kept = np.unique(np.linspace(0, curve.rejected.size - 1, CURVE_POINTS).astype(int))
    return {"map": name, "rejected": curve.rejected[kept].tolist(), "accuracy": curve.accuracy[kept].tolist()}


def _data(outcome: FinishedFit, labels: Labels) -> DataPart:
    material = outcome.material
    rows, full = material.rows, int(material.full.size)
    if material.groups is not None:
        # Of each answer one claim stands for the row.
        rows = [rows[i] for i in np.unique(material.groups, return_index=True)[1]]
        full = np.unique(material.groups[material.full]).size
    draws = [draw for row in rows for draw in row.draws]
    part: DataPart = {
        "rows": outcome.num_rows,
        "usable": len(rows),
        "copies": outcome.copies,
        "rows_full": full,
        "num_samples": material.num_samples,
        "drawn_by": "service" if outcome.calibration.fingerprint.source == "service" else "caller",
        "answers": len(draws),
        "distinct_mean": float(np.mean([len({draw.text for draw in row.draws}) for row in rows])),
        "truncated": sum(d.truncated for d in draws) / len(draws),
        "empty": sum(not d.text for d in draws) / len(draws),
        "references_mean": float(np.mean([len(one.row.references) for one in rows])),
        "correct_from": labels.source,
        "accuracy": float(labels.right.mean()),
        "refused": {
            "count": len(outcome.refused),
            "rows": [
                {"line": one.row.line, "reason": one.refused or ""} for one in outcome.refused[:MAX_REFUSED]
            ],
        },
    }
    return part if material.groups is None else {**part, "claims": int(material.full.size)}
