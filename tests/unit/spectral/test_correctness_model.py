import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from service.spectral.correctness import auroc
from service.spectral.correctness_model import (
    FEATURES,
    MIN_OF_A_KIND,
    CorrectnessModel,
    brier,
    fit_correctness,
    fit_model,
    held_out_predictions,
    log_loss,
    logit_probability,
    nested_sets,
    sigmoid,
    stratified_folds,
)
from tests.unit.spectral.worlds import seeds


def world(seed: int, size: int = 300, strength: float = 1.5) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of all features on scales of their own; the second one decides: the less the likelier right."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, 4)) * [1.0, 3.0, 0.5, 20.0] + [0.0, 2.0, 4.0, -30.0]
    right = rng.random(size) < sigmoid(-1 - strength * (rows[:, 1] - 2.0) / 3.0)
    right[:1], right[1:2] = True, False
    return dict(zip(FEATURES, rows.T, strict=True)), right


def decisive(seed: int, signs: tuple[int, ...] = (1, -1, -1, 1)) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows in which every feature decides alike strongly, each in the direction of its sign."""
    columns, _ = world(seed)
    rows = np.column_stack([(one - one.mean()) / one.std() for one in columns.values()])
    right = np.random.default_rng(seed + 1).random(len(rows)) < sigmoid(rows @ np.array(signs) * 1.5)
    return columns, right


@settings(deadline=None, max_examples=25)
@given(seeds, st.tuples(*[st.sampled_from([-1, 0, 1])] * 4))
def test_it_rises_with_the_texts_probability_and_falls_with_missing_mass_and_entropy(
    seed: int, signs: tuple[int, ...]
) -> None:
    """Whatever the verdicts say: the last feature alone may point either way."""
    columns, right = decisive(seed, signs)
    if right.all() or not right.any():
        return
    model = fit_model(columns, right, FEATURES)
    before = model.predict(columns)
    for name, direction in zip(FEATURES[:3], (1, -1, -1), strict=True):
        more = model.predict(columns | {name: columns[name] + 1.0})
        assert (direction * (more - before) >= 0).all()
        told = dict(zip(FEATURES, signs, strict=True))[name]
        assert (told != direction) or (more != before).all()
    assert np.sign(model.weights[3]) == signs[3] or signs[3] == 0


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_it_is_scikit_learns_on_standardised_features(seed: int) -> None:
    """Where all features decide, by the signs that they are bounded to."""
    columns, right = decisive(seed)
    rows = np.column_stack([columns[name] for name in FEATURES])
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000))
    expected = theirs.fit(rows, right).predict_proba(rows)[:, 1]
    assert fit_model(columns, right, FEATURES).predict(columns) == pytest.approx(expected, abs=1e-5)


def test_a_prediction_by_hand() -> None:
    model = CorrectnessModel(("entropy",), means=(4.0,), scales=(2.0,), weights=(-1.0,), intercept=0.5)
    assert model.predict({"entropy": [4.0, 5.0], "other": [1, 2]}) == pytest.approx(
        [1 / (1 + np.exp(-0.5)), 0.5]
    )
    with pytest.raises(KeyError):
        model.predict({"other": [1.0]})


def test_sets_are_nested_and_those_of_what_there_is() -> None:
    assert [len(one) for one in nested_sets(FEATURES)] == [1, 2, 3, 4]
    without = nested_sets(["entropy", "logit_probability", "unknown"])
    assert without == [("logit_probability",), ("logit_probability", "entropy")]


def test_the_set_of_least_held_out_log_loss_is_chosen_and_fitted_on_all_rows() -> None:
    columns, right = world(1)
    fit = fit_correctness(columns, right, rng=rng())
    assert fit.model is not None
    assert fit.why_none is None
    best = min(fit.candidates, key=lambda one: one.log_loss)
    assert fit.model == fit_model(columns, right, best.features)
    assert "logit_missing_mass" in best.features
    assert fit.base_rate is not None
    assert best.log_loss < fit.base_rate.log_loss
    assert best.brier < fit.base_rate.brier
    assert fit.held_out is not None
    assert (best.log_loss, best.brier) == (log_loss(fit.held_out, right), brier(fit.held_out, right))
    assert auroc(fit.held_out, right) > 0.7
    assert (fit.num_right, fit.num_wrong) == (right.sum(), (~right).sum())


def test_predictions_held_out_are_of_the_other_folds() -> None:
    columns, right = world(2, size=100)
    fold = stratified_folds(right, 5, rng())
    found = held_out_predictions(columns, right, FEATURES[:2], fold)
    base = held_out_predictions(columns, right, (), fold)
    for number in range(5):
        held = fold == number
        rest = {name: values[~held] for name, values in columns.items()}
        model = fit_model(rest, right[~held], FEATURES[:2])
        assert found[held] == pytest.approx(model.predict({n: v[held] for n, v in columns.items()}))
        assert base[held] == pytest.approx(right[~held].mean())
    assert base.std() < 0.01


def test_a_world_that_knows_nothing_hardly_ever_gets_a_model() -> None:
    """Four features of noise: luck alone must beat the base rate by half a standard error."""
    found = []
    for seed in range(40):
        columns, right = world(seed, size=200, strength=0.0)
        fit = fit_correctness(columns, right, rng=rng())
        found.append(fit.why_none)
        assert (fit.model is None) == (fit.why_none == "no_better_than_base_rate")
        assert fit.held_out is not None
    assert found.count("no_better_than_base_rate") >= 32


@pytest.mark.parametrize(
    ("num_right", "why"),
    [(0, "one_kind"), (1, "too_few_verdicts"), (MIN_OF_A_KIND - 1, "too_few_verdicts")],
)
@pytest.mark.parametrize("turned", [False, True])
def test_too_few_verdicts_of_a_kind_have_no_model_and_say_so(num_right: int, why: str, turned: bool) -> None:
    columns, _ = world(0, size=100)
    right = (np.arange(100) < num_right) != turned
    fit = fit_correctness(columns, right, rng=rng())
    assert (fit.model, fit.why_none, fit.held_out, fit.base_rate) == (None, why, None, None)
    assert sorted([fit.num_right, fit.num_wrong]) == sorted([num_right, 100 - num_right])


def test_just_enough_verdicts_are_tried() -> None:
    columns, _ = world(0, size=100)
    right = np.arange(100) < MIN_OF_A_KIND
    columns["logit_probability"] = right + 0.0
    assert fit_correctness(columns, right, rng=rng()).model is not None


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_a_constant_feature_has_no_weight(value: float) -> None:
    columns, right = world(3)
    columns["entropy"] = np.full(right.size, value)
    model = fit_model(columns, right, FEATURES[:3])
    plain = fit_model(columns, right, FEATURES[:2])
    assert model.weights[2] == 0.0
    assert model.predict(columns) == pytest.approx(plain.predict(columns), abs=1e-9)
    moved = columns | {"entropy": columns["entropy"] + 3.0}
    assert model.predict(moved) == pytest.approx(plain.predict(columns), abs=1e-9)


def test_columns_that_cannot_be_used_are_refused() -> None:
    columns, right = world(0)
    with pytest.raises(ValueError, match="finite"):
        fit_correctness(columns | {"entropy": np.full(right.size, np.nan)}, right, rng=rng())
    with pytest.raises(ValueError, match="one finite value"):
        fit_correctness(columns | {"entropy": [1.0, 2.0]}, right, rng=rng())
    with pytest.raises(ValueError, match="none of"):
        fit_correctness({"length": right + 0.0}, right, rng=rng())


def test_no_probability_makes_a_feature_infinite() -> None:
    found = logit_probability([0.0, 0.5, 1.0])
    assert found == pytest.approx([-13.8155, 0.0, 13.8155], abs=1e-4)
