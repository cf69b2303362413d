"""The report of a fit in its final shape, the decision to activate, and warnings in plain words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.fitting import Fitted
from service.domain.calibrating.labels import Labels, label
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration, Method
from service.domain.jobs.model import FEW_ROWS, CalibrateOptions
from service.domain.study.cautions import few_of_a_kind
from service.domain.study.evidence import estimate, evidence
from service.domain.study.report_model import (
    CalibrationPart,
    DataPart,
    Decision,
    Estimate,
    FitPart,
    ParametersAt,
    PlainWarning,
    Report,
)
from service.spectral.fit import Bootstrap, DepolarizedFit, TemperatureFit
from service.spectral.paired import mean_difference

MANY = 0.05  # share of truncated or empty answers that is worth a warning
CONVERGED = 1e-4
_FEWER = (
    "Not activated because it serves fewer answers than the active calibration: requests for more would be "
    "served raw."
)


@dataclass(frozen=True, slots=True, eq=False)
class FinishedFit:
    """Everything a finished fit is about."""

    calibration: Calibration
    options: CalibrateOptions
    material: Material
    fitted: Fitted
    active: Calibration | None
    num_rows: int


def make_report(outcome: FinishedFit) -> Report:
    """Return the report. Blocking: seconds."""
    labels = label(outcome.material)
    found = evidence(outcome.material, outcome.fitted, labels, outcome.options.seed)
    decision = decide(outcome, found.squared_gaps)
    return {
        "version": 1,
        "calibration": _calibration(outcome.calibration),
        "data": _data(outcome, labels),
        "fits": {method: _fit(outcome.fitted, method) for method in outcome.fitted.fits},
        "parameters": _parameters(outcome.calibration),
        "served": found.served,
        "decision": decision,
        "curves": found.curves,
        "warnings": list(_warnings(outcome, labels, decision)),
    }


def decide(outcome: FinishedFit, squared_gaps: Mapping[str, NDArray[np.float64]]) -> Decision:
    """Return whether to activate, by held-out rows: against what is active now, or raw scores.

    squared_gaps: of `Evidence`. Against an active calibration the cross-validated risk decides. Raw scores
    must be beaten in projection Brier, too: their risk is finite only by the eps that they are charged.
    """
    rival, method, seed = (
        "active" if outcome.active else "raw",
        outcome.calibration.method,
        outcome.options.seed,
    )
    risks = outcome.fitted.held_out.risks
    risk = _difference(risks[method], risks[rival], seed)
    brier = _difference(squared_gaps[method], squared_gaps[rival], seed)
    worse = _not_better(risk, brier, outcome.active)
    fewer = outcome.active is not None and outcome.calibration.num_samples < outcome.active.num_samples
    asked = outcome.options.activate
    return {
        "asked": asked,
        "activated": asked == "always" or (asked == "if_better" and not worse and not fewer),
        "against": outcome.active.id if outcome.active else None,
        "brier_difference": brier,
        "difference": risk,
        "reason": _FEWER if fewer and asked == "if_better" else _reason(asked, worse, outcome.active),
    }


def _difference(ours: NDArray[np.float64], others: NDArray[np.float64], seed: int) -> Estimate:
    found = mean_difference(ours, others, np.random.default_rng([seed, 3]))
    return estimate(found.value, found.low, found.high)


def _not_better(risk: Estimate, brier: Estimate, active: Calibration | None) -> list[str]:
    """Return the held-out figures in which it is not below its rival."""
    figures = {"risk": risk} if active else {"projection Brier": brier, "risk": risk}
    return [name for name, gap in figures.items() if gap["value"] is None or gap["value"] >= 0]


def _reason(asked: str, worse: list[str], active: Calibration | None) -> str:
    rival = "the active calibration" if active else "raw scores"
    if asked != "if_better":
        return f"{'Activated' if asked == 'always' else 'Not activated'} as asked."
    if worse:
        return f"Not activated: on held-out prompts it is not better than {rival} ({' and '.join(worse)})."
    alone = "" if active else "none was active for this set-up, and "
    return f"Activated: {alone}on held-out prompts it is better than {rival}."


def _calibration(calibration: Calibration) -> CalibrationPart:
    headline = calibration.headline()
    return {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": headline.depolarization if calibration.method == "depolarized" else None,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": dict(calibration.fingerprint.parts()),
    }


def _parameters(calibration: Calibration) -> list[ParametersAt]:
    depolarized = calibration.method == "depolarized"
    return [
        {
            "num_samples": m,
            "temperature": p.temperature,
            "depolarization": p.depolarization if depolarized else None,
        }
        for m, p in sorted(calibration.parameters.items())
    ]


def _data(outcome: FinishedFit, labels: Labels) -> DataPart:
    material = outcome.material
    draws = [draw for row in material.rows for draw in row.draws]
    return {
        "rows": outcome.num_rows,
        "usable": len(material.rows),
        "rows_full": int(material.full.size),
        "num_samples": material.num_samples,
        "drawn_by": "service" if outcome.calibration.fingerprint.source == "service" else "caller",
        "answers": len(draws),
        "distinct_mean": float(np.mean([len(texts) for texts in material.texts])),
        "truncated": sum(d.truncated for d in draws) / len(draws),
        "empty": sum(not d.text for d in draws) / len(draws),
        "references_mean": float(np.mean([len(one.row.references) for one in material.rows])),
        "correct_from": labels.source,
        "accuracy": float(labels.right.mean()),
    }


def _fit(fitted: Fitted, method: Method) -> FitPart:
    found = fitted.fits[method]
    spread = fitted.bootstraps[method]
    return {
        "temperature": estimate(found.map.temperature, spread.temperature.low, spread.temperature.high),
        "depolarization": _depolarization(found, spread),
        "risk": found.risk,
        "cv_risk": float(fitted.held_out.risks[method].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _depolarization(found: TemperatureFit | DepolarizedFit, spread: Bootstrap) -> Estimate | None:
    if isinstance(found, TemperatureFit) or spread.depolarization is None:
        return None
    return estimate(found.map.depolarization, spread.depolarization.low, spread.depolarization.high)


def _warnings(outcome: FinishedFit, labels: Labels, decision: Decision) -> Iterator[PlainWarning]:
    yield from _about_data(outcome, labels)
    yield from _about_fit(outcome, decision)


def _about_data(outcome: FinishedFit, labels: Labels) -> Iterator[PlainWarning]:
    data, m = _data(outcome, labels), outcome.material.num_samples
    if data["rows_full"] < FEW_ROWS:
        yield _warning(
            "few_rows", f"Only {data['rows_full']} rows: intervals are wide. Use at least {FEW_ROWS}."
        )
    if data["usable"] > data["rows_full"]:
        short = data["usable"] - data["rows_full"]
        yield _warning(
            "short_rows", f"{short} rows have fewer than {m} answers: left out of the headline fit."
        )
    if data["rows"] > data["usable"]:
        left = data["rows"] - data["usable"]
        yield _warning("unusable_rows", f"{left} rows have no reference or fewer than two answers: left out.")
    if labels.right.all() or not labels.right.any():
        which = "right" if labels.right.all() else "wrong"
        yield _warning("one_class", f"All answers are {which}: AUROC cannot be computed.")
    yield from few_of_a_kind(labels.right)
    if data["truncated"] > MANY:
        yield _warning("truncated", f"{data['truncated']:.0%} of the answers were cut by max_tokens.")
    if data["empty"] > MANY:
        yield _warning("empty", f"{data['empty']:.0%} of the answers are empty; they count as one meaning.")


def _about_fit(outcome: FinishedFit, decision: Decision) -> Iterator[PlainWarning]:
    found = outcome.fitted.fits[outcome.calibration.method]
    for name in found.at_bound:
        text = f"The best {name} sits on the bound of the search: the data do not pin it down."
        yield _warning("at_bound", text)
    if not found.at_bound and found.stationarity_gap > CONVERGED:
        yield _warning(
            "not_converged", f"The search stopped {found.stationarity_gap:.1e} from a stationary point."
        )
    yield from _about_gain(outcome, decision)


def _about_gain(outcome: FinishedFit, decision: Decision) -> Iterator[PlainWarning]:
    rival = "the active calibration" if outcome.active else "raw scores"
    risk, brier = decision["difference"], decision["brier_difference"]
    if worse := _not_better(risk, brier, outcome.active):
        text = f"On held-out prompts it is not better than {rival} ({' and '.join(worse)})."
        yield _warning("not_better", text)
    elif any(
        gap["high"] is not None and gap["high"] >= 0 for gap in ([risk] if outcome.active else [brier, risk])
    ):
        yield _warning("gain_unsure", f"Its gain over {rival} may be chance: the interval reaches 0.")


def _warning(code: str, text: str) -> PlainWarning:
    return {"code": code, "text": text}
