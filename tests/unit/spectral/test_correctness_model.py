"""P(correct): a regression on standardised features for claims, the agreement and its prior for answers."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from service.spectral.correctness_model import (
    AGREEMENT,
    FEATURES_OF_CLAIMS,
    FEATURES_OF_TOKENS,
    MIN_WEIGHT,
    NO_VERDICTS,
    OFFSET_SPREAD,
    SLOPE_SPREAD,
    Columns,
    CorrectnessModel,
    agreement,
    best_features,
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
from service.spectral.reliability import auroc
from tests.unit.spectral.worlds import seeds

OF_CLAIMS = (*FEATURES_OF_CLAIMS, *FEATURES_OF_TOKENS)
# Sign to which each weight is bounded.
SIGNS = (1, -1, 1, 1, 1)


def world(seed: int, size: int = 300, strength: float = 1.5) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return claims with all features on different scales: the lower the second, the likelier right."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, 5)) * [1.0, 3.0, 9.0, 2.0, 20.0] + [0.0, 2.0, -12.0, -3.0, -30.0]
    right = rng.random(size) < sigmoid(-1 - strength * (rows[:, 1] - 2.0) / 3.0)
    right[:1], right[1:2] = True, False
    return dict(zip(OF_CLAIMS, rows.T, strict=True)), right


def decisive(seed: int, signs: tuple[int, ...] = SIGNS) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return rows with equally informative features, each in the direction of its sign."""
    columns, _ = world(seed)
    rows = np.column_stack([(column - column.mean()) / column.std() for column in columns.values()])
    right = np.random.default_rng(seed + 1).random(len(rows)) < sigmoid(rows @ np.array(signs) * 1.5)
    return columns, right


@settings(deadline=None, max_examples=25)
@given(seeds, st.tuples(*[st.sampled_from([-1, 0, 1])] * 5))
def test_model_rises_with_probabilities_and_falls_with_entropy(seed: int, signs: tuple[int, ...]) -> None:
    columns, right = decisive(seed, signs)
    if right.all() or not right.any():
        return
    model = fit_model(columns, right, OF_CLAIMS)
    before = model.predict(columns)
    for name, direction, sign in zip(OF_CLAIMS, SIGNS, signs, strict=True):
        more = model.predict(columns | {name: columns[name] + 1.0})
        assert (direction * (more - before) >= 0).all()
        assert (sign != direction) or (more != before).any()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_model_equals_scikit_learn_on_standardised_features(seed: int) -> None:
    """If all features are informative, with the signs that bound them."""
    columns, right = decisive(seed)
    rows = np.column_stack([columns[name] for name in OF_CLAIMS])
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000))
    model = fit_model(columns, right, OF_CLAIMS)
    expected = theirs.fit(rows, right).predict_proba(np.clip(rows, model.lows, model.highs))[:, 1]
    assert model.predict(columns) == pytest.approx(expected, abs=1e-5)


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


def test_features_are_clipped_to_the_range_of_the_rows() -> None:
    """Short claims carry no information about a claim of a hundred nats."""
    columns, right = decisive(0)
    model = fit_model(columns, right, OF_CLAIMS)
    medians = {name: np.full(4, np.median(column)) for name, column in columns.items()}
    for name, low, high in zip(OF_CLAIMS, model.lows, model.highs, strict=True):
        lowest, below, highest, above = model.predict(medians | {name: np.array([low, -1e3, high, 1e3])})
        assert lowest == below != highest == above


def test_feature_sets_are_nested_and_limited_to_existing_features() -> None:
    assert [len(nested_set) for nested_set in nested_sets(OF_CLAIMS)] == [1, 2, 3, 4, 5]
    without = nested_sets(["entropy", "logit_probability", "unknown"])
    assert without == [("logit_probability",), ("logit_probability", "entropy")]


def folds(right: np.ndarray) -> np.ndarray:
    return stratified_folds(right, 5, rng())


def test_feature_set_with_the_lowest_held_out_log_loss_is_fitted_on_all_rows() -> None:
    columns, right = world(1)
    fold = folds(right)
    fit = fit_correctness(columns, right, fold)
    assert fit.model is not None
    assert fit.why_none is None
    tried = {
        nested_set: held_out_predictions(columns, right, nested_set, fold)
        for nested_set in nested_sets(columns)
    }
    best = min(tried, key=lambda item: log_loss(tried[item], right))
    assert "entropy" in best
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


def test_row_is_predicted_by_a_model_fitted_without_it() -> None:
    """Neither for weights, means and scales, nor the choice of features, nor the map."""
    columns, right = world(4, size=60)
    fold = folds(right)
    held = fold == 2
    before = fit_correctness(columns, right, fold)
    after = fit_correctness(columns, np.where(held, ~right, right), fold)
    assert before.held_out is not None
    assert after.held_out is not None
    assert np.array_equal(before.held_out[held], after.held_out[held])
    by_fold: list[Columns] = [columns] * 5
    by_fold[2] = columns | {"logit_probability": -columns["entropy"], "entropy": columns["entropy"][::-1]}
    other = fit_correctness(columns, right, fold, by_fold=by_fold)
    assert other.held_out is not None
    moved = other.held_out != before.held_out
    assert moved[held].any()
    assert not moved[~held].any()


def test_held_out_figures_are_not_optimistic_for_random_verdicts() -> None:
    """The best of four sets looks better than chance on the data that selected it."""
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


def test_held_out_predictions_use_the_other_folds() -> None:
    columns, right = world(2, size=100)
    fold = stratified_folds(right, 5, rng())
    predictions = held_out_predictions(columns, right, OF_CLAIMS[:2], fold)
    base = held_out_predictions(columns, right, (), fold)
    for number in range(5):
        held = fold == number
        rest = {name: values[~held] for name, values in columns.items()}
        model = fit_model(rest, right[~held], OF_CLAIMS[:2])
        assert predictions[held] == pytest.approx(model.predict({n: v[held] for n, v in columns.items()}))
        assert base[held] == pytest.approx((right[~held].sum() + 0.5) / ((~held).sum() + 1))
    assert base.std() < 0.01


def test_uninformative_world_rarely_gets_a_model() -> None:
    """Four noise features: only luck beats the base rate by half a standard error."""
    results = []
    for seed in range(20):
        columns, right = world(seed, size=200, strength=0.0)
        fit = fit_correctness(columns, right, folds(right))
        results.append(fit.why_none)
        assert (fit.model is None) == (fit.why_none == "no_better_than_base_rate")
        assert fit.held_out is not None
    assert results.count("no_better_than_base_rate") >= 18


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("features", [OF_CLAIMS, (AGREEMENT,)])
def test_verdicts_of_one_kind_give_no_model(features: tuple[str, ...], turned: bool) -> None:
    columns = dict(zip(features, world(0, size=100)[0].values(), strict=False))
    right = np.full(100, turned)
    fit = fit_correctness(columns, right, folds(right))
    assert (fit.model, fit.why_none, fit.held_out, fit.base_rate) == (None, "one_kind", None, None)
    assert (fit.num_right, fit.num_wrong) == (100 * turned, 100 * (not turned))


@pytest.mark.parametrize("num_right", [1, 2, 5, 9])
@pytest.mark.parametrize("feature", ["logit_probability", AGREEMENT])
def test_ten_verdicts_with_an_informative_feature_beat_the_base_rate(feature: str, num_right: int) -> None:
    right = np.arange(10) < num_right
    fit = fit_correctness({feature: 6.0 * right - 3.0}, right, folds(right))
    assert fit.held_out is not None
    assert ((fit.held_out > 0) & (fit.held_out < 1)).all()
    assert fit.model is not None
    assert fit.scores is not None
    assert fit.base_rate is not None
    assert fit.scores.log_loss < fit.base_rate.log_loss


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_a_constant_feature_has_no_weight(value: float) -> None:
    columns, right = world(3)
    columns["entropy"] = np.full(right.size, value)
    model = fit_model(columns, right, OF_CLAIMS[:2])
    plain = fit_model(columns, right, OF_CLAIMS[:1])
    assert model.weights[1] == 0.0
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
    logits = logit_probability([0.0, 0.5, 1.0])
    assert logits == pytest.approx([-13.8155, 0.0, 13.8155], abs=1e-4)


def test_constant_up_to_rounding_is_not_a_feature() -> None:
    """Equal texts with float32 vectors: a weight on rounding errors would turn noise into certainty."""
    columns, right = world(2)
    noise = 2.0 + 1e-6 * rng().standard_normal(right.size)
    model = fit_model(columns | {"logit_probability": noise}, right, OF_CLAIMS)
    assert model.weights[0] == 0.0


# P(correct) of answers: the agreement, adjusted by verdicts.

shares = st.floats(0.0, 1.0)


@given(shares, shares, shares)
def test_agreement_rises_with_the_probability_of_the_text(lambda_max: float, one: float, two: float) -> None:
    less, more = sorted((one * lambda_max, two * lambda_max))
    assert agreement(lambda_max, less) <= agreement(lambda_max, more) + 1e-9
    assert np.isfinite(agreement(lambda_max, 0.0))


@given(shares, shares)
def test_agreement_is_at_most_that_of_the_dominant_answer(lambda_max: float, share: float) -> None:
    whole = agreement(lambda_max, lambda_max)
    assert whole == pytest.approx(logit_probability(lambda_max))
    assert agreement(lambda_max, share * lambda_max) <= whole + 1e-9


def test_contradicting_text_is_less_likely_right_with_surer_answers() -> None:
    tops = np.array([0.2, 0.5, 0.9, 0.99])
    p = sigmoid(agreement(tops, 0.0))
    assert p == pytest.approx(0.05 * (1 - tops))


@given(shares, shares)
def test_p_correct_without_verdicts_is_the_agreement(lambda_max: float, share: float) -> None:
    agreed = agreement(lambda_max, share * lambda_max)
    assert NO_VERDICTS.predict({AGREEMENT: [agreed]}) == pytest.approx(sigmoid([agreed]))
    # For the text given by all answers, it is their lambda_max.
    [whole] = NO_VERDICTS.predict({AGREEMENT: [agreement(lambda_max, lambda_max)]})
    assert whole == pytest.approx(np.clip(lambda_max, 1e-6, 1 - 1e-6))


@pytest.mark.parametrize("times", [1, 30])
def test_verdicts_that_match_the_agreement_do_not_change_it(times: int) -> None:
    """Three of four texts with agreement 3 : 1 are right, and half of those without agreement."""
    agreed = np.log([3.0] * 4 + [1.0] * 2 + [1 / 3] * 4)
    right = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0, 0])
    model = fit_model({AGREEMENT: np.tile(agreed, times)}, np.tile(right, times), [AGREEMENT])
    assert model.features == NO_VERDICTS.features
    assert [*model.weights, model.intercept] == pytest.approx([1.0, 0.0], abs=1e-6)
    around = {AGREEMENT: np.linspace(-20, 20, 9)}
    assert model.predict(around) == pytest.approx(NO_VERDICTS.predict(around), abs=1e-6)


def agreed_world(
    seed: int, size: int, slope: float = 1.0, offset: float = 0.0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return agreements and verdicts: the logit of P(right) is a linear function of the agreement."""
    rng = np.random.default_rng(seed)
    columns = {AGREEMENT: 2.5 * rng.standard_normal(size)}
    right = rng.random(size) < sigmoid(slope * columns[AGREEMENT] + offset)
    return columns, right


def most_probable(columns: Mapping[str, np.ndarray], right: np.ndarray) -> np.ndarray:
    """Return slope and offset (2,) by SciPy, with the prior as stated."""
    rows = np.column_stack([columns[AGREEMENT], np.ones(right.size)])
    center, spreads = np.array([1.0, 0.0]), np.array([SLOPE_SPREAD, OFFSET_SPREAD])

    def loss(point: np.ndarray) -> float:
        z = rows @ point
        happened = np.logaddexp(0.0, np.where(right, -z, z)).sum()
        return float(happened + np.square((point - center) / spreads).sum() / 2)

    low = [(MIN_WEIGHT[AGREEMENT], None), (None, None)]
    return minimize(loss, center, method="L-BFGS-B", bounds=low, options={"ftol": 1e-15, "gtol": 1e-9}).x


@settings(deadline=None, max_examples=25)
@given(
    seeds,
    st.sampled_from([1, 2, 10, 100]),
    st.sampled_from([-1.0, 0.3, 1.0, 2.0]),
    st.floats(-3, 3),
)
def test_slope_and_offset_are_maximum_a_posteriori(seed: int, size: int, slope: float, offset: float) -> None:
    """Also with one verdict and with verdicts of one kind."""
    columns, right = agreed_world(seed, size, slope, offset)
    model = fit_model(columns, right, list(columns))
    assert [*model.weights, model.intercept] == pytest.approx(most_probable(columns, right), abs=1e-4)
    assert (model.means[0], model.scales[0]) == (0.0, 1.0)
    assert model.weights[0] >= MIN_WEIGHT[AGREEMENT]


def test_prior_matches_the_method() -> None:
    """Slope ~ N(1, 1/4^2), offset ~ N(0, 1)."""
    assert (SLOPE_SPREAD, OFFSET_SPREAD) == (0.25, 1.0)


@pytest.mark.parametrize(("slope", "offset"), [(1.45, 1.0), (0.5, -2.0)])
def test_slope_and_offset_of_many_verdicts_equal_plain_regression(slope: float, offset: float) -> None:
    gaps = []
    for size in (30, 300, 30_000):
        columns, right = agreed_world(1, size, slope, offset)
        plain = LogisticRegression(C=np.inf, tol=1e-10).fit(columns[AGREEMENT][:, None], right)
        model = fit_model(columns, right, [AGREEMENT])
        gaps.append(abs(model.weights[0] - plain.coef_[0, 0]) + abs(model.intercept - plain.intercept_[0]))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.01


def test_few_verdicts_correct_a_too_low_agreement() -> None:
    """On easy questions (offset 2), more verdicts bring P(correct) nearer to the accuracy."""
    test, right = agreed_world(99, 4000, offset=2.0)
    losses = [log_loss(NO_VERDICTS.predict(test), right)]
    for size in (10, 100, 1000):
        fits = [fit_model(*agreed_world(seed, size, offset=2.0), [AGREEMENT]) for seed in range(20)]
        losses.append(np.mean([log_loss(fit.predict(test), right) for fit in fits]))
    assert losses == sorted(losses, reverse=True)
    assert losses[0] - losses[1] > 0.1


@pytest.mark.parametrize("turned", [False, True])
def test_verdicts_of_one_kind_change_the_agreement_of_a_fold(turned: bool) -> None:
    """For claims, the base rate is used instead."""
    columns, _ = agreed_world(0, 20)
    fold = np.arange(20) // 10
    right = (fold == 0) == turned
    predictions = held_out_predictions(columns, right, [AGREEMENT], fold)
    before = NO_VERDICTS.predict(columns)
    upwards = np.where(fold == 1, turned, not turned)
    assert np.array_equal(predictions > before, upwards)
    assert np.unique(predictions).size == 20
    base = held_out_predictions({"entropy": columns[AGREEMENT]}, right, ["entropy"], fold)
    assert np.unique(base).tolist() == pytest.approx([0.5 / 11, 10.5 / 11])


def test_agreement_is_not_clipped_to_the_range_of_the_rows() -> None:
    columns, right = agreed_world(3, 40)
    model = fit_model(columns, right, [AGREEMENT])
    most = columns[AGREEMENT].max()
    extremes = {AGREEMENT: np.array([most, most + 2, most + 4])}
    assert (np.diff(model.predict(extremes)) > 0).all()


def test_constant_agreement_keeps_a_slope() -> None:
    """The slope has a prior; the verdicts change the offset."""
    model = fit_model({AGREEMENT: np.zeros(10)}, np.arange(10) < 8, [AGREEMENT])
    assert model.weights == pytest.approx((1.0,))
    assert 0.5 < model.predict({AGREEMENT: [0.0]})[0] < 0.8
