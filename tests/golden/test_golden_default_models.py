"""The default's models of P(correct) against the independent ones of the recorded data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calibration.default import FIGURES, packaged
from service.spectral.correctness_model import FEATURES
from service.spectral.text_scores import per_word

THEIRS = ("lp", "lu", "H", "mlp", "pw")
SIZES = (1, 2, 3, 5, 10, 20)
NAMES = ("triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20")


@pytest.fixture(scope="module")
def told(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_data / "defaults.json").read_text())
    assert all(tuple(one["features"]) == THEIRS for one in found.values())
    return found


def ours(m: int) -> Any:
    prior = packaged().model_prior("evidence", m, dict.fromkeys(FEATURES, 0.0))
    assert prior is not None
    return prior


@pytest.mark.parametrize("m", SIZES)
def test_means_scales_and_weights_of_every_feature(told: dict[str, Any], m: int) -> None:
    """To 1e-5 where features are the same. Theirs count words of ASCII letters alone, so 1e-2 for those."""
    theirs, model = told[str(m)], ours(m).model
    assert model.features == FEATURES
    assert model.means[:4] == pytest.approx(theirs["means"][:4], abs=1e-5)
    assert model.scales[:4] == pytest.approx(theirs["scales"][:4], abs=1e-5)
    assert model.means[4] == pytest.approx(theirs["means"][4], abs=1e-2)
    assert model.scales[4] == pytest.approx(theirs["scales"][4], abs=1e-2)
    assert [*model.weights, model.intercept] == pytest.approx(theirs["weights"], abs=1e-2)


@pytest.mark.parametrize("m", SIZES)
def test_the_log_probability_per_word_of_the_recorded_answers(shared_data: Path, m: int) -> None:
    texts = "".join((shared_data / f"{name}.jsonl").read_text("utf-8") for name in NAMES)
    rows = [json.loads(line) for line in texts.splitlines()]
    means = [per_word(row["logprob"][:m], row["samples"][:m]).mean() for row in rows]
    model = ours(m).model
    assert (np.mean(means), np.std(means)) == pytest.approx((model.means[4], model.scales[4]), abs=1e-5)


def test_every_model_keeps_its_signs_and_its_hessian_is_a_curvature() -> None:
    for tables in json.loads(FIGURES.read_text("utf-8"))["correctness"].values():
        for table in tables:
            weights = dict(zip(table["features"], np.transpose(table["parameters"]), strict=False))
            assert (weights["logit_probability"] >= 0).all()
            assert (weights["entropy"] <= 0).all()
            for hessian in np.array(table["hessians"]):
                assert hessian == pytest.approx(hessian.T, abs=1e-6)
                assert np.linalg.eigvalsh(hessian).min() > 0


def test_between_the_numbers_fitted_the_models_are_between_and_beyond_the_last_the_same() -> None:
    near, far, middle = ours(5).model, ours(10).model, ours(7).model
    part = np.log(7 / 5) / np.log(10 / 5)
    for name in ("means", "scales", "weights"):
        low, high = (np.array(getattr(one, name)) for one in (near, far))
        assert getattr(middle, name) == pytest.approx(low + part * (high - low))
    assert ours(200).model == ours(40).model


def test_without_log_probabilities_there_is_a_model_of_what_there_is_and_no_weight_is_no_prior() -> None:
    without = {"logit_probability": [0.0], "entropy": [1.0]}
    for method in ("depolarized", "temperature"):
        prior = packaged().model_prior(method, 3, without)
        assert prior is not None
        assert prior.model.features == ("logit_probability", "entropy")
        assert packaged().model_prior(method, 3, without, weight=0.0) is None
