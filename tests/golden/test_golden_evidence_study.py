"""The evidence map through a study, and by number of answers: figures computed independently beforehand."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.evaluation.experiments import answers, evidence_map, projection
from service.evaluation.experiments import auroc_experiment as auroc
from service.evaluation.results import Experiment
from service.report.diagnostics import EvaluationContext
from tests.golden.test_golden_evaluation import split

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def told(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data / "golden_evidence.json").read_text())["by_first_answers"]


@pytest.fixture(scope="module")
def bench(recorded: dict[str, Any]) -> EvaluationContext:
    """Rows 0-149 fitted, rows 150-399 tested, 20 answers."""
    return EvaluationContext(
        split(recorded, slice(0, 150), tells=True), split(recorded, slice(150, 400), tells=True)
    )


@pytest.fixture(scope="module")
def by_answers(bench: EvaluationContext) -> Experiment:
    return answers(bench)


def test_the_fit_and_its_risks(bench: EvaluationContext, told: dict[str, Any]) -> None:
    found, expected = evidence_map(bench)["headline"], told["20"]["evidence"]
    assert found["temperature"] == pytest.approx(expected["T"], abs=1e-3)
    assert found["intercept"] == pytest.approx(expected["a"], abs=1e-3)
    assert found["slope"] == pytest.approx(expected["b"], abs=1e-3)
    assert found["dev_risk"] == pytest.approx(expected["risk_fit"], abs=1e-5)
    assert found["test_risk"] == pytest.approx(expected["risk_test"], abs=1e-5)
    for name in ("temperature", "intercept", "slope"):
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
    assert found["cv_risk"] < found["cv_risk_depolarized"]


def test_its_projection_and_ranking(bench: EvaluationContext, told: dict[str, Any]) -> None:
    expected = told["20"]["evidence"]
    assert bench.served["evidence"].risks.mean() == pytest.approx(expected["risk_test"], abs=1e-5)
    headline = projection(bench)["headline"]
    assert headline["evidence_brier"] == pytest.approx(expected["projection_brier"], abs=5e-3)
    assert headline["evidence_ece"] == pytest.approx(expected["projection_ece"], abs=5e-3)
    ranking = auroc(bench)["headline"]
    assert ranking["evidence_lambda_max"] == pytest.approx(expected["auroc_lambda_max"], abs=5e-3)
    assert ranking["evidence_entropy"] == pytest.approx(expected["auroc_entropy"], abs=5e-3)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 10, 20])
@pytest.mark.parametrize("name", ["depolarized", "evidence"])
def test_by_number_of_answers(by_answers: Experiment, told: dict[str, Any], m: int, name: str) -> None:
    mine = {"num_samples": m, "score": "lambda_max", "map": name}
    rows = [row for row in by_answers["points"] if mine.items() <= row.items()]
    if (m, name) == (1, "depolarized"):
        assert rows == []  # one answer has a spectrum of 1, whatever it is
        return
    [row], expected = rows, told[str(m)][name]
    assert row["loss"] == pytest.approx(expected["risk_test"], abs=1e-5)
    assert row["brier"] == pytest.approx(expected["projection_brier"], abs=1e-6)
    assert row["auroc"] == pytest.approx(expected["auroc_lambda_max"], abs=1e-6)
