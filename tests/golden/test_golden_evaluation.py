"""The experiments on the recorded data agree with what was computed independently beforehand."""

from typing import Any

import numpy as np
import pytest

from service.calibration.material import assemble
from service.calibration.rows import DevRow, StoredRow
from service.evaluation.baselines import recorded as recorded_likelihoods
from service.evaluation.experiments import (
    algorithm1_diagram,
    constant,
    depolarized,
    naive,
    projection,
    temperature,
)
from service.evaluation.experiments import auroc_experiment as auroc
from service.evaluation.files import Recorded
from service.llm.port import Draw
from service.report.diagnostics import EvaluationContext, Split, make_split
from service.spectral.text_scores import correct

pytestmark = pytest.mark.shared
SERVED = {
    "raw": ("raw",),
    "temperature": ("temperature", "served_on_sample_spectrum"),
    "depolarized": ("depolarized", "served"),
}


def stored(number: int, row: dict[str, Any], *, tells: bool) -> StoredRow:
    """A row with its verdict; an `answer` that is none of the samples has no recorded vector."""
    samples, answer = tuple(row["samples"]), row["answer"]
    made = DevRow(
        number,
        None,
        (row["reference"],),
        prompt=row["prompt"],
        samples=samples,
        answer=answer if answer in samples else None,
        correct=correct(answer, [row["reference"]], containment=False),
    )
    told = row["logprob"] if tells else [None] * len(samples)
    draws = tuple(Draw(text, total_logprob=one) for text, one in zip(samples, told, strict=True))
    return StoredRow(made, draws, complete=True)


def split(recorded: dict[str, Any], part: slice, *, tells: bool = False) -> Split:
    place: dict[str, int] = {}
    for row, samples, reference in zip(recorded["rows"], recorded["S"], recorded["Y"], strict=True):
        place |= dict(zip(row["samples"], samples.tolist(), strict=True)) | {row["reference"]: int(reference)}
    numbered = list(enumerate(recorded["rows"], start=1))[part]
    rows = [stored(i, row, tells=tells) for i, row in numbered]
    return make_split(assemble(rows, 20, recorded["emb"], place, 768))


@pytest.fixture(scope="module")
def bench(recorded: dict[str, Any]) -> EvaluationContext:
    return EvaluationContext(split(recorded, slice(0, 150)), split(recorded, slice(150, 400)))


@pytest.fixture(scope="module")
def expected(golden: dict[str, Any]) -> dict[str, dict[str, float]]:
    found = {}
    for name, path in SERVED.items():
        figures: Any = golden
        for key in path:
            figures = figures[key]
        found[name] = figures
    assert found
    return found


def test_fits(bench: EvaluationContext, golden: dict[str, Any]) -> None:
    paper, ours = temperature(bench)["headline"], depolarized(bench)["headline"]
    assert paper["temperature"] == pytest.approx(golden["temperature"]["T"], abs=1e-3)
    assert paper["dev_risk"] == pytest.approx(golden["temperature"]["risk_fit"], abs=1e-6)
    assert paper["test_risk"] == pytest.approx(golden["temperature"]["risk_test"], abs=1e-5)
    assert ours["temperature"] == pytest.approx(golden["depolarized"]["T"], abs=1e-3)
    assert ours["depolarization"] == pytest.approx(golden["depolarized"]["gamma"], abs=1e-3)
    assert ours["test_risk"] == pytest.approx(golden["depolarized"]["risk_test"], abs=1e-5)


def test_projection_figures(bench: EvaluationContext, expected: dict[str, dict[str, float]]) -> None:
    headline = projection(bench)["headline"]
    for name, figures in expected.items():
        assert headline[f"{name}_ece"] == pytest.approx(figures["projection_ece"], abs=1e-5)
        assert headline[f"{name}_brier"] == pytest.approx(figures["projection_brier"], abs=1e-5)


def test_algorithm1_figures(bench: EvaluationContext, expected: dict[str, dict[str, float]]) -> None:
    paper, plain = algorithm1_diagram(bench)["headline"], naive(bench)["headline"]
    for name, figures in expected.items():
        assert paper[f"{name}_ece"] == pytest.approx(figures["algorithm1_ece_B8_C5"], abs=5e-3)
        assert plain[f"{name}_ece"] == pytest.approx(figures["naive_ece_B8"], abs=5e-3)


def test_aurocs(bench: EvaluationContext, expected: dict[str, dict[str, float]]) -> None:
    headline = auroc(bench)["headline"]
    for name, figures in expected.items():
        for score in ("lambda_max", "entropy"):
            assert headline[f"{name}_{score}"] == pytest.approx(figures[f"auroc_{score}"], abs=1e-3)


def test_the_constant_predictor_has_its_optimum_at_one(bench: EvaluationContext) -> None:
    headline = constant(bench)["headline"]
    assert headline["one_within"] is True
    assert headline["best_temperature"] == pytest.approx(1.0, abs=1e-4)


def test_log_probabilities_are_of_whole_answers(bench: EvaluationContext, recorded: dict[str, Any]) -> None:
    """Longer answers are less likely as a whole: what is recorded is no mean."""
    found = recorded_likelihoods(
        bench.test, {i + 1: Recorded(row["logprob"]) for i, row in enumerate(recorded["rows"])}
    )
    assert found is not None
    assert found.totals is not None
    totals, per_word = np.concatenate(found.totals), np.concatenate(found.normalised)
    words = totals / per_word
    assert np.corrcoef(words, totals)[0, 1] < -0.4
    assert abs(np.corrcoef(words, per_word)[0, 1]) < 0.4
