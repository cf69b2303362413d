"""The default's models of P(correct) against the independent ones of the recorded data."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.few_verdicts import Elsewhere, Seen, chosen, judged_on
from benchmarks.recorded_evidence import WEIGHTS
from service.calibration import labels
from service.calibration.calibration import WITHOUT_EVIDENCE
from service.calibration.default import ALONE, DIMENSION, figures_file, packaged
from service.embedding.port import PAPER, EmbedderIdentity
from service.spectral.correctness_model import FEATURES, MIN_WEIGHT, fit_model, log_loss
from service.spectral.text_scores import correct_by_rouge_l, per_word
from tools.recorded_rows import JudgedRows

THEIRS = ("lp", "lu", "H", "mlp", "pw")
SIZES = (1, 2, 3, 5, 10, 20)
MPNET = EmbedderIdentity("all-mpnet-base-v2", "", DIMENSION, "float32")
NAMES = ("triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20")


@pytest.fixture(scope="module", autouse=True)
def verdicts_of_the_release() -> Iterator[None]:
    """`default-1` was fitted with verdicts by ROUGE-L, before there was a rule of our own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "correct", correct_by_rouge_l)
        patch.setattr(labels, "verdict", lambda text, of: "equal" if correct_by_rouge_l(text, of) else "none")
        yield


@pytest.fixture(scope="module")
def told(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_data / "defaults.json").read_text())
    assert all(tuple(one["features"]) == THEIRS for one in found.values())
    return found


def ours(m: int) -> Any:
    prior = packaged(PAPER).model_prior("evidence", m, dict.fromkeys(FEATURES, 0.0))
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


@pytest.fixture(scope="module")
def every(shared_data: Path) -> JudgedRows:
    return JudgedRows(NAMES, shared_data, WEIGHTS, 20)


@pytest.mark.mpnet
@pytest.mark.parametrize("m", SIZES)
def test_weights(told: dict[str, Any], every: JudgedRows, monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    """Theirs let the weight of p(y) be 0; ours are the same where that is allowed."""
    columns, right = every.columns(packaged(PAPER).under(MPNET).evidence[m], m)
    served = fit_model(columns, right, FEATURES)
    assert [*ours(m).model.weights] == pytest.approx([*served.weights], abs=1e-5)
    monkeypatch.setitem(MIN_WEIGHT, "logit_probability", 0.0)
    free = fit_model(columns, right, FEATURES)
    assert [*free.weights, free.intercept] == pytest.approx(told[str(m)]["weights"], abs=1e-2)
    losses = [log_loss(one.predict(columns), right) for one in (served, free)]
    assert losses[0] - losses[1] < 2e-3


@pytest.mark.mpnet
@pytest.mark.parametrize("dimension", [384, 3072])
@pytest.mark.parametrize(("method", "most"), [("evidence", 2e-3), ("depolarized", 1e-4)])
def test_what_it_says_hangs_little_on_the_number_of_dimensions(
    every: JudgedRows, monkeypatch: pytest.MonkeyPatch, dimension: int, method: str, most: float
) -> None:
    """The served spectrum's noise spreads over all of them, and so its entropy rises with their number."""
    losses = []
    for d in (DIMENSION, dimension):
        monkeypatch.setattr(every.rows, "material", replace(every.rows.material, dimension=d))
        rows = every.rows.at(3)
        default = packaged(PAPER).under(MPNET)
        columns = rows.columns(default.evidence[3] if method == "evidence" else default.map_for(3))
        known = {name: columns[name] for name in (FEATURES if method == "evidence" else WITHOUT_EVIDENCE)}
        losses.append(log_loss(packaged(PAPER).rank(method, 3, known, d), rows.right))
    assert losses[1] == pytest.approx(losses[0], abs=most)


@pytest.mark.parametrize("m", SIZES)
def test_the_log_probability_per_word_of_the_recorded_answers(shared_data: Path, m: int) -> None:
    texts = "".join((shared_data / f"{name}.jsonl").read_text("utf-8") for name in NAMES)
    rows = [json.loads(line) for line in texts.splitlines()]
    means = [per_word(row["logprob"][:m], row["samples"][:m]).mean() for row in rows]
    model = ours(m).model
    assert (np.mean(means), np.std(means)) == pytest.approx((model.means[4], model.scales[4]), abs=1e-5)


def test_every_model_keeps_its_signs_and_its_hessian_is_a_curvature() -> None:
    for method, tables in json.loads(figures_file(PAPER).read_text("utf-8"))["correctness"].items():
        for table in tables:
            weights = dict(zip(table["features"], np.transpose(table["parameters"]), strict=False))
            if method == ALONE:
                assert (weights["answer_log_probability_per_word"] > 1).all()
            else:
                assert (weights["logit_probability"] >= MIN_WEIGHT["logit_probability"]).all()
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
        prior = packaged(PAPER).model_prior(method, 3, without)
        assert prior is not None
        assert prior.model.features == ("logit_probability", "entropy")
        assert packaged(PAPER).model_prior(method, 3, without, weight=0.0) is None


@pytest.fixture(scope="module")
def sets(shared_data: Path) -> tuple[Seen, Seen]:
    dev, test = (Seen(JudgedRows([name], shared_data, WEIGHTS, 20).rows.at(3)) for name in NAMES)
    return dev, test


@pytest.mark.mpnet
@pytest.mark.parametrize(
    ("labels", "own", "drawn"),
    [(5, 0.431, 0.380), (10, 0.444, 0.384), (30, 0.407, 0.376), (70, 0.380, 0.368)],
)
def test_log_loss_of_few_verdicts_on_rows_that_the_other_file_has_not_seen(
    sets: tuple[Seen, Seen], labels: int, own: float, drawn: float
) -> None:
    """Means of 100 draws, by 3 answers: alone, and drawn to map and model of the other file."""
    there, rows = Elsewhere.of(sets[0]), sets[1]
    rngs = (np.random.default_rng([draw, labels]) for draw in range(100))
    losses = [judged_on(rows, chosen(rows.right, labels, False, one), there, False) for one in rngs]
    found = np.mean(losses, axis=0)
    assert found[1:3] == pytest.approx([own, drawn], abs=5e-3)
    assert found[2] < min(found[:2])
