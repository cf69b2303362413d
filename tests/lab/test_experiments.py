"""All experiments on small synthetic files."""

import json

import numpy as np
import pytest

from lab import experiments
from lab.algorithm1 import algorithm1, cluster_prompts
from lab.baselines import Likelihoods, baselines, by_embedding, by_entailment, likelihoods
from lab.experiments import Evaluation, cal_s, claim, comparison, make_results
from lab.page import render_evaluation
from lab.text_scores import lexical_similarity
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import fit_all
from service.report.report import figures
from service.spectral.dev_set import risk
from service.spectral.reliability import auroc
from tests.support.pages import svgs
from tests.support.reports import FEW, origin, small_material, small_report
from tests.support.worlds import rows, split

TEST_ROWS = rows(45, seed=2)
MAPS = ("raw", "temperature", "depolarized", "evidence")


def context(dev, test):
    return Evaluation(dev, test, resamples=FEW)


def evaluated(dataset):
    return make_results(dataset, (40, 45), origin())


@pytest.fixture(scope="module")
def bench():
    return context(split(rows(40, seed=1)), split(TEST_ROWS))


@pytest.fixture(scope="module")
def results(bench):
    return evaluated(bench)


@pytest.fixture(scope="module")
def served(results):
    return {row["map"]: row for row in results["served"]}


def test_equal_seeds_give_equal_json_results(bench, results):
    again = evaluated(context(bench.dev, bench.test))
    assert json.dumps(again, allow_nan=False) == json.dumps(results, allow_nan=False)


def test_papers_fit_is_the_minimum_of_its_curve(results):
    fit, curve = results["fits"]["temperature"], results["curves"]["temperature"]
    assert fit["risk"] == pytest.approx(fit["mean_entropy"], abs=1e-6)
    assert fit["temperature"]["low"] <= fit["temperature"]["value"] <= fit["temperature"]["high"]
    assert min(curve["risk"]) >= fit["risk"] - 1e-9


def test_diagrams_are_those_of_the_algorithm(bench, results):
    assert [row["map"] for row in results["algorithm1"]] == [row["map"] for row in results["served"]]
    for row, naive in zip(results["algorithm1"], results["naive"], strict=True):
        served = bench.served[row["map"]].lambda_max
        for clusters, result in ((1, naive["ece"]), (5, row["ece"])):
            clustered = cluster_prompts(bench.stack, served, num_bins=8, num_clusters=clusters)
            assert result == pytest.approx(algorithm1(clustered, bench.targets).ece, abs=1e-6)
        assert sum(row["cluster_sizes"]) + row["singletons"] == len(bench.test)
        assert min(row["cluster_sizes"]) >= 2


def test_every_ece_has_its_null(results, served):
    rows_ = [*results["algorithm1"], *results["naive"]]
    nulls = [row[null] for row in rows_ for null in ("drawn", "rescaled")]
    for draws, result in ((FEW.nulls, nulls), (FEW.band, [r["projection_null"] for r in served.values()])):
        for null in result:
            assert null["draws"] == draws
            assert 0 < null["low"] < null["mean"] < null["high"] < 1
            assert 0 < null["p_value"] <= 1


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


def test_one_class_of_answers_has_no_auroc(bench):
    wrong = [{**row, "answer": "zzz"} for row in TEST_ROWS]
    results_ = evaluated(context(bench.dev, split(wrong)))
    assert {row["auroc_lambda_max"]["value"] for row in results_["served"]} == {None}
    assert {row["auroc"]["value"] for row in results_["baselines"]["rows"]} == {None}
    assert "auroc_lambda_max" not in {row["figure"] for row in results_["comparison"]}


def test_warnings_name_their_file(bench):
    lopsided = split([{**row, "answer": "zzz"} if i > 6 else row for i, row in enumerate(TEST_ROWS)])
    warnings_ = list(experiments.warnings(context(bench.dev, lopsided)))
    codes = [warning["code"] for warning in warnings_]
    assert codes == ["few_rows", "few_rows", "few_wrong", "few_right"]
    assert ["dev file" in claim_["text"] for claim_ in warnings_[2:4]] == [True, False]
    assert "test file" in warnings_[3]["text"]


def test_reported_minima_over_temperatures_are_minima(results):
    part = results["calibration_error"]
    for measure, at in part["lowest_at"].items():
        assert min(part["points"], key=lambda row: row[measure])["temperature"] == at
    assert part["by_map"].keys() == set(MAPS)


def test_too_many_prompts_for_all_pairs_have_no_calibration_error(bench, monkeypatch):
    monkeypatch.setattr(experiments, "MAX_COSINES", 44)
    assert cal_s(bench) is None


def test_verdict_is_of_the_map_with_the_lowest_risk(results):
    risks = {name: fit["cv_risk"] for name, fit in results["fits"].items()}
    assert risks[results["method"]] == min(risks.values())
    assert "projection ECE" in results["verdict"][0]
    assert results["verdict"][-1] == results["answers"]["recommendation"]


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


def test_figures_are_of_the_served_maps(bench, results, served):
    right = bench.test.rows.right
    for name, served_ in bench.served.items():
        assert served[name]["auroc_entropy"]["value"] == pytest.approx(auroc(-served_.entropy, right))
    [first] = [curve["accuracy"][0] for curve in results["curves"]["rejection"] if curve["map"] == "raw"]
    assert first == pytest.approx(right.mean())
    rows = {(row["second"], row["first"], row["figure"]): row for row in results["comparison"]}
    expected = risk(bench.maps["depolarized"], bench.test.rows.dev) - risk(
        bench.maps["raw"], bench.test.rows.dev
    )
    gap = rows["depolarized", "raw", "test_risk"]
    assert gap["difference"]["value"] == pytest.approx(expected)
    assert gap["real"] is (gap["difference"]["low"] > 0 or gap["difference"]["high"] < 0)


def test_baselines_are_named_and_computed(bench, results):
    results_ = {row["score"]: row for row in results["baselines"]["rows"]}
    assert len(results_) == 7
    values = [lexical_similarity(t, c) for t, c in zip(bench.test.texts, bench.test.counts, strict=True)]
    right = bench.test.rows.right
    assert results_["lexical similarity"]["auroc"]["value"] == pytest.approx(auroc(values, right))
    distinct = auroc([-len(t) for t in bench.test.texts], right)
    assert results_["number of distinct answers"]["auroc"]["value"] == pytest.approx(distinct)
    assert "no NLI model" in results_["discrete semantic entropy"]["note"]
    assert "no NLI model" in results["baselines"]["meanings"]


def test_evidence_and_logprob_scores_are_left_out_without_logprobs(bench):
    silent = context(bench.dev, split(TEST_ROWS, tells=False))
    assert likelihoods(silent.test) is None
    result = baselines(silent, by_embedding(silent.test))
    assert not any("likelihood" in row["score"] for row in result["rows"])
    assert result["log_probabilities"] == "not run: the answers carry no log-probabilities"
    scores = figures(silent)
    assert "evidence" not in scores["fits"]
    assert scores["unfitted"]["evidence"].startswith("45 of 45 prompts have an answer without")


def test_logprobs_of_whole_answers_are_per_word(bench):
    likelihoods_ = likelihoods(bench.test)
    assert isinstance(likelihoods_, Likelihoods)
    assert likelihoods_.unit == "word"
    assert likelihoods_.totals is not None
    assert likelihoods_.totals[0] == pytest.approx(TEST_ROWS[0]["logprob"])


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


def test_report_decides_by_the_rows_of_the_comparison():
    fitted = fit_all(small_material(), "depolarized", resamples=FEW)
    differences = comparison(CrossValidated(fitted, resamples=FEW), FEW.figure_difference)
    rows_ = {(row["second"], row["first"], row["figure"]): row["difference"] for row in differences}
    decision = small_report()["decision"]
    assert decision["difference"] == pytest.approx(rows_["depolarized", "raw", "cv_risk"], rel=1e-5)
    assert decision["brier_difference"] == pytest.approx(
        rows_["depolarized", "raw", "projection_brier"], rel=1e-5
    )
