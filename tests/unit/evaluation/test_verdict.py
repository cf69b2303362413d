"""The three sentences on top, and whether the paper's claim holds."""

import copy

import pytest

from service.evaluation.experiments import claim
from service.evaluation.results import ran
from service.evaluation.study import verdict


def gap(first, figure, difference, half=0.05):
    low, high = difference - half, difference + half
    return {
        "second": "depolarized",
        "first": first,
        "figure": figure,
        "difference": difference,
        "low": low,
        "high": high,
        "real": low > 0 or high < 0,
    }


def projection(name, ece, p_value):
    return {
        f"{name}_ece": ece,
        f"{name}_band_low": 0.016,
        f"{name}_band_high": 0.048,
        f"{name}_p_value": p_value,
    }


def experiments(risk=-0.28, p_ours=0.5, auroc=(0.68, 0.59, 0.76)):
    value, low, high = auroc
    comparison = [gap("temperature", "test_risk", risk), gap("raw", "projection_brier", -0.1)]
    row = {"map": "depolarized", "score": "lambda_max", "auroc": value, "low": low, "high": high}
    nulls = {
        **projection("raw", 0.311, 0.001),
        **projection("temperature", 0.101, 0.001),
        **projection("depolarized", 0.029, p_ours),
    }
    return [
        ran("comparison", "", {}, comparison),
        ran("projection_reliability", "", nulls, []),
        ran("auroc", "", {}, [row]),
    ]


def test_three_sentences_that_say_what_was_found():
    gain, calibrated, ranking = verdict(experiments())
    assert "risk is below that of the paper's map (difference -0.280" in gain
    assert "Brier score below that of raw scores" in gain
    assert "raw scores are not calibrated (0.311 against 0.016 to 0.048, p = 0.001)" in calibrated
    assert "the paper's map is not calibrated (0.101" in calibrated
    assert "the depolarized map shows no miscalibration (0.029" in calibrated
    assert "tells right answers from wrong ones (AUROC 0.680, 95 % 0.590 to 0.760)" in ranking


def test_what_is_not_found_is_not_claimed():
    gain, calibrated, ranking = verdict(experiments(risk=-0.01, p_ours=0.05, auroc=(0.55, 0.45, 0.65)))
    assert "not told apart from" in gain
    assert "the depolarized map is not calibrated" in calibrated
    assert "is not shown to tell" in ranking
    assert "above" in verdict(experiments(risk=0.2))[0]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_experiment_that_did_not_run_is_said_so(missing):
    found = copy.deepcopy(experiments())
    found[missing]["ran"] = False
    told = verdict(found)
    assert len(told) == 3
    assert "not tested" in told[missing] or "cannot be said" in told[missing]


def test_no_verdict_rests_on_algorithm_1():
    assert not any("Algorithm 1" in one for one in verdict(experiments()))


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ((4.0, 4.0, 4.0), "holds on these files: all three are lowest at T = 4"),
        ((4.0, 2.0, 4.0), "fails on these files: the risk is lowest at T = 4, the eigenvalue ECE at 2."),
        ((4.0, 2.0, 5.7), "the eigenvalue ECE at 2 and the Cal_S at 5.7."),
        ((4.0, 4.0, 5.7), "holds for the ECE only: the risk is lowest at T = 4, the Cal_S at 5.7."),
        ((4.0, None, 4.0), "cannot be tested"),
    ],
)
def test_the_claim_is_tested_on_the_data_at_hand(at, told):
    assert told in claim(*at)
