"""All experiments on small synthetic files."""

import numpy as np
import pytest

from lab import experiments
from lab.baselines import baselines, by_embedding, by_entailment, likelihoods
from lab.experiments import Evaluation, cal_s, claim, make_results
from lab.page import render_evaluation
from lab.splits import Split
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import fit_all
from service.calibration.labels import LabelledRows
from service.report.report import fits_part
from tests.support.pages import svgs
from tests.support.reports import FEW, origin, small_material, small_report
from tests.support.worlds import rows, split, vectors

TEST_ROWS = rows(45, seed=2)


def context(dev, test):
    return Evaluation(dev, test, vectors(test), resamples=FEW)


def evaluated(dataset):
    return make_results(dataset, (40, 45), origin())


@pytest.fixture(scope="module")
def bench():
    return context(split(rows(40, seed=1)), split(TEST_ROWS))


@pytest.fixture(scope="module")
def results(bench):
    return evaluated(bench)


def test_papers_fit_is_the_minimum_of_its_curve(results):
    fit, curve = results["fits"]["temperature"], results["curves"]["temperature"]
    assert fit["risk"] == pytest.approx(fit["mean_entropy"], abs=1e-6)
    assert min(curve["risk"]) >= fit["risk"] - 1e-9


def test_figures_without_clusters_are_null(bench):
    """Orthogonal answers: no cluster has two members."""
    alone = [
        {**row, "samples": [f"{i} {k} apart" for k in range(8)], "reference": f"{i} other"}
        for i, row in enumerate(TEST_ROWS[:12])
    ]
    results_ = evaluated(context(bench.dev, split(alone)))
    assert {row["ece"] for row in results_["algorithm1"]} == {None}
    assert not any(row["bins"] for row in results_["algorithm1"])
    page = render_evaluation(results_)
    assert "no cluster has two members" in page
    assert not [name for name in svgs(page) if name.startswith("algorithm1")]
    assert "cannot be tested here" in results_["calibration_error"]["claim"]


def test_too_many_prompts_for_all_pairs_have_no_calibration_error(bench, monkeypatch):
    monkeypatch.setattr(experiments, "MAX_COSINES", 44)
    assert cal_s(bench) is None


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ((4.0, 4.0, 4.0), "holds on these files: the risk is lowest at T = 4."),
        ((4.0, 2.0, 4.0), "fails on these files: the risk is lowest at T = 4, the eigenvalue ECE at 2."),
        ((4.0, 2.0, 5.7), "the eigenvalue ECE at 2, the Cal_S at 5.7."),
        ((4.0, 4.0, 5.7), "holds for the ECE only on these files"),
        ((4.0, None, 4.0), "cannot be tested"),
    ],
)
def test_claim_is_tested_on_the_given_data(at, told):
    assert told in claim(*at)


def test_evidence_and_logprob_scores_are_left_out_without_logprobs(bench):
    silent = context(bench.dev, split(TEST_ROWS, tells=False))
    assert likelihoods(silent.test) is None
    result = baselines(silent, by_embedding(silent.test))
    assert not any("likelihood" in row["score"] for row in result["rows"])
    assert result["log_probabilities"] == "not run: the answers carry no log-probabilities"
    scores = fits_part(silent)
    assert "evidence" not in scores["fits"]
    assert scores["unfitted"]["evidence"].startswith("45 of 45 prompts have an answer without")


class Nli:
    """Entailment if the last word is the same. Records its calls."""

    name = "last-word"

    def __init__(self):
        self.pairs = []

    def probabilities(self, pairs):
        self.pairs += pairs
        same = np.array([a.split()[-1] == b.split()[-1] for a, b in pairs], dtype=float)
        return np.stack([same, 0.5 * (1 - same), 0.5 * (1 - same)], axis=1)


def test_entailment_model_is_used_in_both_directions_and_named(bench):
    model = Nli()
    result = by_entailment(bench.test, model)
    assert result.source == "entailment both ways by last-word"
    prompt, texts = result.prompts[0], bench.test.texts[0]
    last = [text.split()[-1] for text in texts]
    assert prompt.equivalent.tolist() == [[a == b for b in last] for a in last]
    assert (prompt.similarity == prompt.similarity.T).all()
    assert set(model.pairs) >= {(b, a) for a, b in model.pairs}
    assert all(a.startswith("q") for a, _ in model.pairs)  # answers follow their prompt


def test_report_decides_by_the_held_out_figures_of_each_prompt():
    rows_ = LabelledRows(small_material())
    fitted, prompts = fit_all(rows_, "depolarized"), Split(rows_)
    maps, decision = fitted.maps, small_report()["decision"]

    def briers(name):
        served = prompts.served([maps.maps[name][k] for k in maps.fold], maps.risks[name])
        return np.square(served.lambda_max - prompts.c1)

    for field, (ours, raw) in {
        "difference": (maps.risks["depolarized"], maps.risks["raw"]),
        "brier_difference": (briers("depolarized"), briers("raw")),
    }.items():
        gap = CrossValidated(fitted, resamples=FEW).difference(ours, raw)
        expected = {"value": gap.value, "low": gap.low, "high": gap.high}
        assert decision[field] == pytest.approx(expected, rel=1e-5)
