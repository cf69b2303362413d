"""The report of a fit: a selection of the study's experiments on its own rows, each held out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from service.domain.calibrating.decision import decide
from service.domain.calibrating.evidence import EvidenceFound, why_no_evidence
from service.domain.calibrating.fitting import Fitted
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration
from service.domain.jobs.model import CalibrateOptions
from service.domain.study.bench import Bench, HeldOut
from service.domain.study.cautions import about_data, about_fit, about_gain
from service.domain.study.experiments.checks import convergence
from service.domain.study.experiments.correctness import rejection
from service.domain.study.experiments.reliability import algorithm1_diagram, correctness, projection
from service.domain.study.experiments.risk_curves import temperature
from service.domain.study.experiments.side_by_side import side_by_side
from service.domain.study.model import Experiment, TableRow, estimate
from service.domain.study.report_model import (
    Bin,
    CalibrationPart,
    Curves,
    DataPart,
    Estimate,
    EvidenceAt,
    FitPart,
    ParametersAt,
    RejectionCurve,
    Report,
    SamplesAt,
    TemperatureCurve,
)
from service.domain.study.split import Labels, make_split
from service.spectral.evidence_fit import EvidenceFit
from service.spectral.fit import Bootstrap, DepolarizedFit, Interval, TemperatureFit
from service.spectral.fit import Method as PlainMethod

Shape = TypeVar("Shape")  # of a row as a report has it


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
    rows = make_split(outcome.material, outcome.fitted.dev)
    bench = HeldOut(rows, outcome.fitted, seed=outcome.options.seed, eps=outcome.calibration.eps)
    data, calibration = _data(outcome, rows.labels), outcome.calibration
    decision = decide(calibration, outcome.active, outcome.options.activate, bench)
    report: Report = {
        "version": 1,
        "calibration": _calibration(calibration),
        "data": data,
        "fits": _fits(outcome.fitted),
        "unfitted": {"evidence": why} if (why := why_no_evidence(outcome.material)) else {},
        "parameters": _parameters(calibration),
        "served": side_by_side(bench),
        "decision": decision,
        "curves": curves(bench),
        "warnings": [
            *about_data(data, rows.labels.right),
            *about_fit(_found(outcome.fitted)),
            *about_gain(decision),
        ],
    }
    table = _evidence_table(calibration)
    return {**report, "evidence_parameters": table} if table else report


def curves(bench: Bench) -> Curves:
    """Return the tables of those experiments that a report draws, in its own shape."""
    return {
        "temperature": _temperature(temperature(bench)),
        "projection": _bins(projection(bench), bench.served),
        "algorithm1": _bins(algorithm1_diagram(bench), bench.served),
        "correctness": _bins(correctness(bench), bench.served),
        "rejection": _rejection(rejection(bench), bench.served),
        "samples": [_of_shape(SamplesAt, row) for row in convergence(bench)["points"]],
    }


def _number(row: TableRow, name: str) -> float:
    """Return a figure of an experiment that is known wherever the experiment ran."""
    value = row[name]
    assert isinstance(value, float | int), name
    return value


def _column(rows: Iterable[TableRow], name: str) -> list[float]:
    return [_number(row, name) for row in rows]


def _temperature(experiment: Experiment) -> TemperatureCurve:
    rows = experiment["points"]
    return {
        "temperatures": _column(rows, "temperature"),
        "risk": _column(rows, "dev_risk"),
        "entropy": _column(rows, "dev_entropy"),
        "optimum": _number(experiment["headline"], "temperature"),
    }


def _bins(experiment: Experiment, maps: Iterable[str]) -> dict[str, list[Bin]]:
    """Return by map the bins that have a target; none of a map where the experiment did not run."""
    known = [row for row in experiment["points"] if row["observed"] is not None]
    return {name: [_of_shape(Bin, row) for row in known if row["map"] == name] for name in maps}


def _of_shape(shape: type[Shape], row: TableRow) -> Shape:
    """Return the columns of a row that the report has, under their names."""
    return cast("Shape", {name: row[name] for name in shape.__annotations__})


def _rejection(experiment: Experiment, maps: Iterable[str]) -> list[RejectionCurve]:
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    by_map = {name: [row for row in rows if row["map"] == name] for name in maps}
    return [
        {"map": name, "rejected": _column(mine, "rejected"), "accuracy": _column(mine, "accuracy")}
        for name, mine in by_map.items()
    ]


def _calibration(calibration: Calibration) -> CalibrationPart:
    headline, table = calibration.headline(), _evidence_table(calibration)
    part: CalibrationPart = {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": None if calibration.method == "temperature" else headline.depolarization,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": dict(calibration.fingerprint.shown()),
    }
    return {**part, "evidence": table[-1]} if table else part


def _evidence_table(calibration: Calibration) -> list[EvidenceAt]:
    return [
        {
            "num_samples": m,
            "temperature": found.temperature,
            "evidence_intercept": found.intercept,
            "evidence_slope": found.slope,
        }
        for m, found in sorted(calibration.evidence.items())
    ]


def _parameters(calibration: Calibration) -> list[ParametersAt]:
    depolarized = calibration.method != "temperature"
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


def _found(fitted: Fitted) -> TemperatureFit | DepolarizedFit | EvidenceFit:
    """Return the fit of the map that was chosen."""
    if fitted.method != "evidence":
        return fitted.fits[fitted.method]
    assert fitted.evidence is not None
    return fitted.evidence.fit


def _fits(fitted: Fitted) -> dict[str, FitPart]:
    parts: dict[str, FitPart] = {method: _fit(fitted, method) for method in fitted.fits}
    if fitted.evidence is not None:
        parts["evidence"] = _evidence_fit(fitted.evidence)
    return parts


def _evidence_fit(evidence: EvidenceFound) -> FitPart:
    found, spread = evidence.fit, evidence.bootstrap
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
        "depolarization": None,
        "intercept": _estimate(found.map.intercept, spread.intercept),
        "slope": _estimate(found.map.slope, spread.slope),
        "risk": found.risk,
        "cv_risk": float(evidence.risks["evidence"].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _estimate(value: float, spread: Interval) -> Estimate:
    return estimate(value, spread.low, spread.high)


def _fit(fitted: Fitted, method: PlainMethod) -> FitPart:
    found = fitted.fits[method]
    spread = fitted.bootstraps[method]
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
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
    return _estimate(found.map.depolarization, spread.depolarization)
