"""The report of a fit: a selection of the study's experiments on its own rows, each held out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from service.domain.calibrating.decision import decide
from service.domain.calibrating.fitting import Fitted
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration, Method
from service.domain.jobs.model import CalibrateOptions
from service.domain.study.bench import Bench, HeldOut
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
    FitPart,
    ParametersAt,
    RejectionCurve,
    Report,
    SamplesAt,
    TemperatureCurve,
)
from service.domain.study.report_warnings import about_data, about_fit, about_gain
from service.domain.study.split import Labels, make_split
from service.spectral.fit import Bootstrap, DepolarizedFit, TemperatureFit

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
    return {
        "version": 1,
        "calibration": _calibration(calibration),
        "data": data,
        "fits": {method: _fit(outcome.fitted, method) for method in outcome.fitted.fits},
        "parameters": _parameters(calibration),
        "served": side_by_side(bench),
        "decision": decision,
        "curves": curves(bench),
        "warnings": [
            *about_data(data, rows.labels.right),
            *about_fit(outcome.fitted.fits[calibration.method]),
            *about_gain(decision),
        ],
    }


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
    # Experiments may gain columns: a report is a contract, and keeps to its own.
    return cast("Shape", {name: row[name] for name in shape.__annotations__})


def _rejection(experiment: Experiment, maps: Iterable[str]) -> list[RejectionCurve]:
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    by_map = {name: [row for row in rows if row["map"] == name] for name in maps}
    return [
        {"map": name, "rejected": _column(mine, "rejected"), "accuracy": _column(mine, "accuracy")}
        for name, mine in by_map.items()
    ]


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
