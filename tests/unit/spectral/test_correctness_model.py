from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from service.spectral.correctness_model import (
    FEATURES,
    Columns,
    CorrectnessModel,
    ModelPrior,
    best_features,
    brier,
    fit_correctness,
    fit_model,
    held_out_predictions,
    log_loss,
    logit_probability,
    model_prior,
    nested_sets,
    sigmoid,
    stratified_folds,
)
from service.spectral.reliability import auroc
from tests.unit.spectral.worlds import seeds


def world(seed: int, size: int = 300, strength: float = 1.5) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of all features on scales of their own; the second one decides: the less the likelier right."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, 5)) * [1.0, 3.0, 0.5, 20.0, 2.0] + [0.0, 2.0, 4.0, -30.0, -3.0]
    right = rng.random(size) < sigmoid(-1 - strength * (rows[:, 1] - 2.0) / 3.0)
    right[:1], right[1:2] = True, False
    return dict(zip(FEATURES, rows.T, strict=True)), right


def decisive(
    seed: int, signs: tuple[int, ...] = (1, -1, -1, 1, 1)
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows in which every feature decides alike strongly, each in the direction of its sign."""
    columns, _ = world(seed)
    rows = np.column_stack([(one - one.mean()) / one.std() for one in columns.values()])
    right = np.random.default_rng(seed + 1).random(len(rows)) < sigmoid(rows @ np.array(signs) * 1.5)
    return columns, right


@settings(deadline=None, max_examples=25)
@given(seeds, st.tuples(*[st.sampled_from([-1, 0, 1])] * 5))
def test_it_rises_with_the_texts_probability_and_falls_with_missing_mass_and_entropy(
    seed: int, signs: tuple[int, ...]
) -> None:
    """Whatever the verdicts say: the mean log-probability alone may point either way."""
    columns, right = decisive(seed, signs)
    if right.all() or not right.any():
        return
    model = fit_model(columns, right, FEATURES)
    before = model.predict(columns)
    bounded = [name for name in FEATURES if name != "mean_log_probability"]
    for name, direction in zip(bounded, (1, -1, -1, 1), strict=True):
        more = model.predict(columns | {name: columns[name] + 1.0})
        assert (direction * (more - before) >= 0).all()
        told = dict(zip(FEATURES, signs, strict=True))[name]
        assert (told != direction) or (more != before).any()
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
    found = fit_model(columns, right, FEATURES)
    expected = theirs.fit(rows, right).predict_proba(np.clip(rows, found.lows, found.highs))[:, 1]
    assert found.predict(columns) == pytest.approx(expected, abs=1e-5)


def test_a_prediction_by_hand() -> None:
    model = CorrectnessModel(("entropy",), (4.0,), (2.0,), (-1.0,), 0.5, lows=(0.0,), highs=(9.0,))
    assert model.predict({"entropy": [4.0, 5.0], "other": [1, 2]}) == pytest.approx(
        [1 / (1 + np.exp(-0.5)), 0.5]
    )
    assert model.predict({"entropy": [-1e9, 0.0, 9.0, 1e9]}) == pytest.approx(
        1 / (1 + np.exp([-2.5, -2.5, 2.0, 2.0]))
    )
    with pytest.raises(KeyError):
        model.predict({"other": [1.0]})


@pytest.mark.parametrize("drawn", [True, False])
def test_an_essay_is_no_surer_than_the_surest_of_short_answers(drawn: bool) -> None:
    """With answers of a few words a longer one may be likelier right; a hundred nats show nothing of that."""
    random = rng()
    total = -random.gamma(4.0, 1.5, 200)
    columns = {"logit_probability": random.normal(size=200), "mean_log_probability": total}
    right = random.random(200) < 1 / (1 + np.exp(total + 7))
    prior = model_prior(columns, right, list(columns), 100.0) if drawn else None
    model = fit_model(columns, right, list(columns), prior=prior)
    assert model.weights[1] < 0
    told = model.predict({"logit_probability": [0.0] * 2, "mean_log_probability": [-103.0, total.min()]})
    assert told[0] == told[1]


def test_sets_are_nested_and_those_of_what_there_is() -> None:
    assert [len(one) for one in nested_sets(FEATURES)] == [1, 2, 3, 4, 5]
    without = nested_sets(["entropy", "logit_probability", "unknown"])
    assert without == [("logit_probability",), ("logit_probability", "entropy")]


def folds(right: np.ndarray) -> np.ndarray:
    return stratified_folds(right, 5, rng())


def test_the_set_of_least_held_out_log_loss_is_chosen_and_fitted_on_all_rows() -> None:
    columns, right = world(1)
    fold = folds(right)
    fit = fit_correctness(columns, right, fold)
    assert fit.model is not None
    assert fit.why_none is None
    tried = {one: held_out_predictions(columns, right, one, fold) for one in nested_sets(columns)}
    best = min(tried, key=lambda one: log_loss(tried[one], right))
    assert "logit_missing_mass" in best
    assert fit.model == fit_model(columns, right, best)
    assert fit.held_out is not None
    assert fit.scores is not None
    assert fit.base_rate is not None
    assert fit.scores.log_loss < fit.base_rate.log_loss
    assert fit.scores.brier < fit.base_rate.brier
    assert (fit.scores.log_loss, fit.scores.brier) == (
        log_loss(fit.held_out, right),
        brier(fit.held_out, right),
    )
    assert auroc(fit.held_out, right) > 0.7
    assert (fit.num_right, fit.num_wrong) == (right.sum(), (~right).sum())


def test_a_row_has_no_part_in_what_predicts_it() -> None:
    """Neither in weights, nor in means and scales, nor in the choice of features, nor in the map."""
    columns, right = world(4, size=60)
    fold = folds(right)
    held = fold == 2
    before = fit_correctness(columns, right, fold)
    after = fit_correctness(columns, np.where(held, ~right, right), fold)
    assert before.held_out is not None
    assert after.held_out is not None
    assert np.array_equal(before.held_out[held], after.held_out[held])
    by_fold: list[Columns] = [columns] * 5
    by_fold[2] = columns | {"entropy": columns["entropy"][::-1], "logit_missing_mass": -columns["entropy"]}
    other = fit_correctness(columns, right, fold, by_fold=by_fold)
    assert other.held_out is not None
    moved = other.held_out != before.held_out
    assert moved[held].any()
    assert not moved[~held].any()


def test_what_is_held_out_is_not_optimistic_where_verdicts_are_coin_flips() -> None:
    """The best of five sets looks better than chance where it is judged on what chose it."""
    gains, chosen = [], []
    for seed in range(30):
        columns, right = world(seed, size=40, strength=0.0)
        fold = folds(right)
        fit = fit_correctness(columns, right, fold)
        assert fit.held_out is not None
        best = held_out_predictions(columns, right, best_features(columns, right, fold), fold)
        base = held_out_predictions(columns, right, (), fold)
        gains.append(log_loss(base, right) - log_loss(fit.held_out, right))
        chosen.append(log_loss(fit.held_out, right) - log_loss(best, right))
    assert np.mean(gains) < 0
    assert np.mean(chosen) > 0.005


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
        assert base[held] == pytest.approx((right[~held].sum() + 0.5) / ((~held).sum() + 1))
    assert base.std() < 0.01


def test_a_world_that_knows_nothing_hardly_ever_gets_a_model() -> None:
    """Five features of noise: luck alone must beat the base rate by half a standard error."""
    found = []
    for seed in range(20):
        columns, right = world(seed, size=200, strength=0.0)
        fit = fit_correctness(columns, right, folds(right))
        found.append(fit.why_none)
        assert (fit.model is None) == (fit.why_none == "no_better_than_base_rate")
        assert fit.held_out is not None
    assert found.count("no_better_than_base_rate") >= 18


@pytest.mark.parametrize("turned", [False, True])
def test_verdicts_of_one_kind_have_no_model_and_say_so(turned: bool) -> None:
    columns, _ = world(0, size=100)
    right = np.full(100, turned)
    for prior in (None, elsewhere()):
        fit = fit_correctness(columns, right, folds(right), prior=prior)
        assert (fit.model, fit.why_none, fit.held_out, fit.base_rate) == (None, "one_kind", None, None)
        assert (fit.num_right, fit.num_wrong) == (100 * turned, 100 * (not turned))


@pytest.mark.parametrize("num_right", [1, 2, 5, 9])
def test_ten_verdicts_are_tried_with_a_prior_and_without(num_right: int) -> None:
    columns, _ = world(0, size=10)
    right = np.arange(10) < num_right
    columns["logit_missing_mass"] = 2.0 - 6.0 * right
    for prior in (None, elsewhere()):
        fit = fit_correctness(columns, right, folds(right), prior=prior)
        assert fit.held_out is not None
        assert ((fit.held_out > 0) & (fit.held_out < 1)).all()
    assert fit.model is not None
    assert fit.scores is not None
    assert fit.base_rate is not None
    assert fit.scores.log_loss < fit.base_rate.log_loss


def elsewhere(weight: float = 100.0, seed: int = 9, size: int = 700) -> ModelPrior:
    """What other rows of the same world say."""
    return model_prior(*world(seed, size), FEATURES, weight)


def test_no_weight_is_the_fit_on_these_rows_and_all_of_it_the_priors_model() -> None:
    columns, right = world(3, size=80)
    far = fit_model(columns, right, FEATURES, prior=elsewhere(1e12))
    there = elsewhere().model
    assert (far.weights, far.intercept) == (pytest.approx(there.weights), pytest.approx(there.intercept))
    assert (far.means, far.scales) == (there.means, there.scales)
    # Standardised as the prior is, but for that the same.
    rows = np.column_stack([columns[name] for name in FEATURES])
    prior = elsewhere(0.0)
    own = fit_model(columns, right, FEATURES)
    like_own = {"means": tuple(rows.mean(axis=0)), "scales": tuple(rows.std(axis=0))}
    bounds = {"lows": own.lows, "highs": own.highs}
    rescaled = ModelPrior(replace(prior.model, **like_own, **bounds), prior.hessian, 0.0)
    none = fit_model(columns, right, FEATURES, prior=rescaled)
    assert none.predict(columns) == pytest.approx(own.predict(columns), abs=1e-8)


def test_few_rows_do_better_drawn_to_others_and_keep_their_own_base_rate() -> None:
    test, known = world(11, size=2000)
    losses = []
    for seed in range(30):
        columns, right = world(100 + seed, size=15)
        drawn = fit_model(columns, right, FEATURES, prior=elsewhere())
        alone = fit_model(columns, right, FEATURES)
        losses.append([log_loss(one.predict(test), known) for one in (drawn, alone)])
    drawn_to, own = np.mean(losses, axis=0)
    assert drawn_to < own - 0.05
    # Ten rows' worth of intercept give way to forty rows that are nearly all right.
    columns, right = world(5, size=40)
    told = np.arange(40) > 2
    moved = fit_model(columns, told, FEATURES, prior=elsewhere())
    assert moved.predict(columns).mean() > 0.5 > elsewhere().model.predict(columns).mean()


def test_a_prior_leaves_no_choice_of_features() -> None:
    columns, right = world(1, size=150)
    prior = elsewhere()
    fold = folds(right)
    assert best_features(columns, right, fold, prior) == FEATURES
    fit = fit_correctness(columns, right, fold, prior=prior)
    assert fit.model == fit_model(columns, right, FEATURES, prior=prior)
    assert fit.held_out == pytest.approx(held_out_predictions(columns, right, FEATURES, fold, prior=prior))


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
        fit_correctness(columns | {"entropy": np.full(right.size, np.nan)}, right, folds(right))
    with pytest.raises(ValueError, match="one finite value"):
        fit_correctness(columns | {"entropy": [1.0, 2.0]}, right, folds(right))
    with pytest.raises(ValueError, match="none of"):
        fit_correctness({"length": right + 0.0}, right, folds(right))


def test_no_probability_makes_a_feature_infinite() -> None:
    found = logit_probability([0.0, 0.5, 1.0])
    assert found == pytest.approx([-13.8155, 0.0, 13.8155], abs=1e-4)


def test_what_rounding_leaves_of_a_constant_is_no_feature() -> None:
    """Equal texts by vectors of float32: a weight of their last bits would make certainties of noise."""
    columns, right = world(2)
    noise = 2.0 + 1e-6 * rng().standard_normal(right.size)
    model = fit_model(columns | {"logit_probability": noise}, right, FEATURES)
    assert model.weights[0] == 0.0
