"""The report of a fit: a selection of the study's experiments on its own rows, each held out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from service.domain.calibrating.decision import decide, too_many_refused
from service.domain.calibrating.evidence import why_no_evidence
from service.domain.calibrating.fitting import Fitted
from service.domain.calibrating.judged import Labels
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration
from service.domain.jobs.model import CalibrateOptions
from service.domain.jobs.store import StoredRow
from service.domain.scoring.judgement import Target
from service.domain.study.bench import Bench, HeldOut
from service.domain.study.decider_parts import correctness_part
from service.domain.study.experiments.answers import answers
from service.domain.study.experiments.checks import convergence
from service.domain.study.experiments.correctness import rejection
from service.domain.study.experiments.reliability import algorithm1_diagram, correctness, projection
from service.domain.study.experiments.risk_curves import temperature
from service.domain.study.experiments.side_by_side import side_by_side
from service.domain.study.fit_parts import (
    calibration_part,
    chosen_fit,
    evidence_table,
    fit_parts,
    parameters_part,
)
from service.domain.study.model import Experiment, TableRow
from service.domain.study.opening import opening
from service.domain.study.report_model import (
    AnswersPart,
    AnswersRow,
    Bin,
    Curves,
    DataPart,
    RejectionCurve,
    Report,
    SamplesAt,
    TemperatureCurve,
)
from service.domain.study.report_warnings import about_data, about_fit, about_gain, about_verdicts
from service.domain.study.split import make_split

MAX_REFUSED = 50  # listed; all are counted
Shape = TypeVar("Shape")  # of a row as a report has it


@dataclass(frozen=True, slots=True, eq=False)
class FinishedFit:
    """Everything a finished fit is about.

    target: what decisions keep where nobody names another; copies: rows left out since another asks the same.
    """

    calibration: Calibration
    options: CalibrateOptions
    material: Material
    fitted: Fitted
    active: Calibration | None
    num_rows: int
    target: Target
    copies: int = 0
    refused: Sequence[StoredRow] = ()


def make_report(outcome: FinishedFit) -> Report:
    """Return the report. Blocking: seconds."""
    rows = make_split(outcome.material, outcome.fitted.dev)
    bench = HeldOut(rows, outcome.fitted, seed=outcome.options.seed, eps=outcome.calibration.eps)
    data, calibration = _data(outcome, rows.labels), outcome.calibration
    decision = decide(calibration, outcome.active, outcome.options.activate, bench)
    veto = too_many_refused(len(outcome.refused), outcome.num_rows)
    if decision["activated"] and veto:
        decision |= {"activated": False, "reason": veto}
    judged = [outcome.material.rows[i] for i in outcome.material.full]
    part, served = calibration_part(calibration), side_by_side(bench)
    worth = _answers(answers(bench))
    right = correctness_part(outcome.fitted, calibration.num_samples, outcome.options.seed, outcome.target)
    report: Report = {
        "version": 1,
        "opening": opening(part, data, served, right, worth, outcome.target.error),
        "calibration": part,
        "data": data,
        "fits": fit_parts(outcome.fitted),
        "unfitted": {"evidence": why} if (why := why_no_evidence(outcome.material)) else {},
        "parameters": parameters_part(calibration),
        "served": served,
        "decision": decision,
        "curves": curves(bench),
        "answers": worth,
        "correctness": right,
        "warnings": [
            *about_data(data, rows.labels.right),
            *about_verdicts(rows.labels.verdicts, [row.row.references for row in judged]),
            *about_fit(chosen_fit(outcome.fitted)),
            *about_gain(decision),
        ],
    }
    table = evidence_table(calibration)
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


def _answers(experiment: Experiment) -> AnswersPart:
    told = experiment["headline"]
    names = AnswersPart.__annotations__.keys() - {"rows"}
    rows = [_of_shape(AnswersRow, row) for row in experiment["points"]]
    return cast("AnswersPart", {**{name: told[name] for name in sorted(names)}, "rows": rows})


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


def _data(outcome: FinishedFit, labels: Labels) -> DataPart:
    material = outcome.material
    draws = [draw for row in material.rows for draw in row.draws]
    return {
        "rows": outcome.num_rows,
        "usable": len(material.rows),
        "copies": outcome.copies,
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
        "refused": {
            "count": len(outcome.refused),
            "rows": [
                {"line": one.row.line, "reason": one.refused or ""} for one in outcome.refused[:MAX_REFUSED]
            ],
        },
    }
