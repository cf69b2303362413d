"""The experiments of the paper in worlds with known answers."""

import json

import numpy as np
import pytest

from lab import experiments
from lab.algorithm1 import cluster_prompts
from lab.density import DensityStack, frobenius_cosines
from lab.experiments import GRID, Evaluation, similarities
from lab.figures import figures, tables
from lab.paper import constant_predictor, convergence, mean_cosine, similarity
from lab.vectors import Answers, overlaps
from tests.support.reports import FEW, evaluation_results
from tests.support.worlds import rows, split, vectors


def prompt(index, seed=0):
    """Return a prompt whose answers are orthogonal."""
    vectors = np.eye(max(index) + 1)
    return overlaps(Answers(vectors, np.array(index), vectors[:1]))


def test_lambda_max_of_few_orthogonal_answers_is_too_large():
    """With a largest share of a half, subsets of one answer have lambda_max 1."""
    points = convergence([prompt([0, 0, 1, 2])] * 30, np.random.default_rng(0))
    assert [point["num_samples"] for point in points] == [1, 2, 3, 4]
    assert points[0]["mean"] == pytest.approx(1.0)
    assert points[-1]["mean"] == pytest.approx(0.5)
    assert points[-1]["deviation"] == pytest.approx(0.0, abs=1e-12)
    # Two of four answers: equal in one of six pairs.
    assert points[1]["mean"] == pytest.approx(1 / 6 + 5 / 6 * 0.5, abs=0.03)


def test_steps_of_five_end_at_all_answers():
    points = convergence([prompt([0, 1] * 6)], np.random.default_rng(0))
    assert [point["num_samples"] for point in points] == [5, 10, 12]


@pytest.mark.parametrize("references", [1, 3])
def test_risk_of_the_constant_predictor_is_lowest_at_1(references):
    spread = np.random.default_rng(0).standard_normal((80, references, 12)) * np.geomspace(1, 0.1, 12)
    part = constant_predictor(DensityStack.of(list(spread)), np.random.default_rng(0), 50)
    best = part["optimum"]
    assert best["value"] == pytest.approx(1.0, abs=1e-3)
    assert best["low"] < 1.0 < best["high"]
    at_one = part["temperatures"].index(min(part["temperatures"], key=lambda t: abs(t - 1)))
    assert part["risk"][at_one] == min(part["risk"])
    assert part["risk"][at_one] == pytest.approx(part["entropy"][at_one])


def test_similarity_within_clusters_and_bins():
    """Two subjects, each of two prompts with equal matrices, in one bin."""
    stack = DensityStack.of([np.eye(2)[[i]] for i in (0, 0, 1, 1)])
    cosines = frobenius_cosines(stack)
    clustering = cluster_prompts(stack, np.full(4, 0.5), num_clusters=2)
    [row] = similarity(cosines, clustering)
    assert row == {"predicted": 0.5, "within_bin": pytest.approx(1 / 3), "within_clusters": pytest.approx(1)}
    assert mean_cosine(cosines) == pytest.approx(1 / 3)
    alone = cluster_prompts(stack, np.full(4, 0.5), num_clusters=4)
    assert similarity(cosines, alone)[0]["within_clusters"] is None


def test_too_many_prompts_have_no_similarity(monkeypatch):
    monkeypatch.setattr(experiments, "MAX_COSINES", 11)
    test = split(rows(12, seed=2))
    assert similarities(Evaluation(split(rows(40)), test, vectors(test), resamples=FEW)) is None


def test_every_setting_of_algorithm_1_is_in_the_results():
    results = evaluation_results()
    settings = [(row["map"], row["num_bins"], row["num_clusters"]) for row in results["sensitivity"]]
    assert settings == [(row["map"], *setting) for row in results["served"] for setting in GRID]
    standard = {row["map"]: row["ece"] for row in results["algorithm1"]}
    for row in results["sensitivity"]:
        if (row["num_bins"], row["num_clusters"]) == (8, 5):
            assert row["ece"] == standard[row["map"]]


def test_every_experiment_has_a_figure_or_a_table():
    results = evaluation_results()
    drawn = figures(results)
    names = {"convergence", "constant_predictor", "temperature", "rejection", "co_minimised", "similarity"}
    kinds = ("projection", "correctness", "algorithm1", "naive")
    assert drawn.keys() == names | {f"{kind}-{row['map']}" for kind in kinds for row in results["served"]}
    assert all(svg.startswith("<svg") for svg in drawn.values())
    text = tables(results)
    assert all(f"| {row['score']} |" in text for row in results["baselines"]["rows"])
    assert text.count("| Raw | 10 | 7 |") == 1


def test_unknown_figures_are_left_out():
    results = json.loads(json.dumps(evaluation_results()))
    results |= {"calibration_error": None, "similarity": None}
    assert not {"co_minimised", "similarity"} & figures(results).keys()
    assert "| Raw | " in tables(results)
