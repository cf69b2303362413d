"""P(correct): a regression on standardised features for claims, the agreement and its prior for answers."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from service.spectral.correctness_model import (
    AGREEMENT,
    FEATURES_OF_CLAIMS,
    FEATURES_OF_TOKENS,
    MIN_WEIGHT,
    OFFSET_SPREAD,
    WEIGHT_PRIOR,
    CorrectnessModel,
    brier,
    fit_correctness,
    fit_model,
    held_out_predictions,
    log_loss,
    nested_sets,
    sigmoid,
    stratified_folds,
)
from service.spectral.reliability import auroc
from tests.support.decisions import AGREED
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
    assert fit.why_none is None
    tried = {names: held_out_predictions(columns, right, names, fold) for names in nested_sets(columns)}
    best = min(tried, key=lambda item: log_loss(tried[item], right))
    assert "entropy" in best
    assert fit.model == fit_model(columns, right, best)
    assert fit.held_out is not None and fit.scores is not None and fit.base_rate is not None
    assert fit.scores.log_loss == log_loss(fit.held_out, right) < fit.base_rate.log_loss
    assert fit.scores.brier == brier(fit.held_out, right) < fit.base_rate.brier
    assert auroc(fit.held_out, right) > 0.7
    assert (fit.num_right, fit.num_wrong) == (right.sum(), (~right).sum())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("features", [OF_CLAIMS, (AGREEMENT,)])
def test_verdicts_of_one_kind_give_no_model(features: tuple[str, ...], turned: bool) -> None:
    columns = dict(zip(features, world(0, size=100)[0].values(), strict=False))
    right = np.full(100, turned)
    fit = fit_correctness(columns, right, folds(right))
    assert (fit.model, fit.why_none, fit.held_out, fit.base_rate) == (None, "one_kind", None, None)
    assert (fit.num_right, fit.num_wrong) == (100 * turned, 100 * (not turned))


def test_columns_that_cannot_be_used_are_refused() -> None:
    columns, right = world(0)
    with pytest.raises(ValueError, match="finite"):
        fit_correctness(columns | {"entropy": np.full(right.size, np.nan)}, right, folds(right))
    with pytest.raises(ValueError, match="one finite value"):
        fit_correctness(columns | {"entropy": [1.0, 2.0]}, right, folds(right))
    with pytest.raises(ValueError, match="none of"):
        fit_correctness({"length": right + 0.0}, right, folds(right))


# P(correct) of answers: the agreement, adjusted by verdicts.


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
    center, spreads = np.array([1.0, 0.0]), np.array([WEIGHT_PRIOR[AGREEMENT][1], OFFSET_SPREAD])

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


@pytest.mark.parametrize("turned", [False, True])
def test_verdicts_of_one_kind_change_the_agreement_of_a_fold(turned: bool) -> None:
    """For claims, the base rate is used instead."""
    columns, _ = agreed_world(0, 20)
    fold = np.arange(20) // 10
    right = (fold == 0) == turned
    predictions = held_out_predictions(columns, right, [AGREEMENT], fold)
    before = AGREED.predict(columns)
    upwards = np.where(fold == 1, turned, not turned)
    assert np.array_equal(predictions > before, upwards)
    assert np.unique(predictions).size == 20
    base = held_out_predictions({"entropy": columns[AGREEMENT]}, right, ["entropy"], fold)
    assert np.unique(base).tolist() == pytest.approx([0.5 / 11, 10.5 / 11])
