"""P(correct), the probability that a text is right (**ours**, method, sections 8 and 13).

For answers, P(correct) is a logistic regression on the `agreement` of the answers drawn and, if the LLM was
asked for it, on the logit of its self-check (method, section 15). For claims, P(correct) is a logistic
regression on standardised features with an L2 penalty, on the nested feature set of lowest cross-validated
log loss. A model is served only if it beats the base rate, or if a model of the same LLM is known. Folds have
equal shares of right and wrong answers.

Sources: scikit-learn's `LogisticRegression` (the penalty and C); Platt, *Probabilistic Outputs for Support
Vector Machines*, 1999 (slope and offset of logits); Varma and Simon, *Bias in Error Estimation when Using
Cross-Validation for Model Selection*, 2006 (nested cross-validation).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.fit import Prior, drawn_to, minimize
from service.spectral.resampling import grouped

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Columns = Mapping[str, ArrayLike]
WhyNone = Literal["one_kind", "no_better_than_base_rate"]

AGREEMENT = "agreement"
SELF_CHECK = "self_check"  # the logit of P(True), see `logit_self_check`
FEATURES_OF_CLAIMS = ("logit_probability", "entropy")
# Log-probabilities of a claim: of the tokens of its facts, of the least likely such token, of all tokens.
FEATURES_OF_TOKENS = ("fact_log_probability", "least_log_probability", "log_probability")
FEATURES = (
    AGREEMENT,
    *FEATURES_OF_CLAIMS,
    SELF_CHECK,
    *FEATURES_OF_TOKENS,
)  # in the order of the nested sets
# Probability that a differing text is right when the answers are wrong. With .03 and .08, the log loss on
# recorded answers that were not drawn for the score differs by less than .001 nats.
OTHERWISE = 0.05
# Standard deviation of the prior of the intercept, centered at 0, and center and standard deviation of the
# prior of each weight. On the recorded sets, half and twice these values cost up to .02 nats with 10 to 100
# verdicts.
OFFSET_SPREAD = 1.0
WEIGHT_PRIOR = {AGREEMENT: (1.0, 0.25), SELF_CHECK: (0.8, 0.5)}
# The same around a model of the same LLM that is known from other questions. Where it is right, ten verdicts
# cost .002 nats on the recorded sets; where it is .1 too high or too low, they gain .025 to .045.
KNOWN_WEIGHT_SPREAD, KNOWN_OFFSET_SPREAD = 0.15, 0.5
# Bounds of the weights: the meaning of a feature fixes the sign of its weight.
MIN_WEIGHT = {
    AGREEMENT: 0.1,
    SELF_CHECK: 0.0,
    "logit_probability": 0.1,
    "fact_log_probability": 0.0,
    "least_log_probability": 0.0,
    "log_probability": 0.0,
}
MAX_WEIGHT = {"entropy": 0.0}
# Number of standard errors by which a model must beat the base rate. Random verdicts pass in 1/3 of cases at
# 0, in 1/7 at 0.5 and in 1/12 at 1, but at 1 half of the recorded sets without evidence fail. With ten random
# verdicts, 1/10 (half of them right) to 3/10 (a fifth of them right) pass at 0.5.
MIN_GAIN = 0.5
PROBABILITY_CLIP = 1e-6  # a text outside a raw spectrum's span has probability 0, and logit -inf
CHECK_CLIP = 1e-4
STRENGTH = 1.0  # C (method, section 8); also scikit-learn's default
NO_SPREAD = 1e-5
# Features are clipped to these quantiles of the rows. Without clipping, a model fitted on answers of a few
# words was certain about an essay.
BOUNDS = (0.01, 0.99)
MIN_PROBABILITY = 1e-15  # a probability of 0 for the observed outcome would have infinite loss


def verdicts(labels: ArrayLike) -> NDArray[np.bool_]:
    """Return labels (n,) in {0, 1} as booleans, True = right. Raises ValueError for anything else."""
    values = np.asarray(labels)
    binary = values.dtype == bool or np.isin(values, (0, 1)).all()
    if values.ndim != 1 or values.size == 0 or not binary:
        raise ValueError("verdicts must be a non-empty vector of 0 and 1")
    return values.astype(bool)


def stratified_folds(
    labels: ArrayLike, folds: int, rng: np.random.Generator, groups: ArrayLike | None = None
) -> Ints:
    """Return a random fold 0 .. folds - 1 for each row (n,), with right and wrong rows spread evenly.

    groups: (n,), rows of a group share a fold; None: each row is its own group. Groups are stratified by
    their number of right rows. Each stratum continues at the fold where the previous one ended, so that folds
    have equal sizes. Raises ValueError for fewer than two folds, or labels that are not verdicts.
    """
    right = verdicts(labels)
    if folds < 2:
        raise ValueError("at least two folds are needed")
    of_row = grouped(groups, right.size)
    num_right = np.bincount(of_row, weights=right)
    kinds = np.unique(num_right)[::-1]
    order = np.concatenate([rng.permutation(np.flatnonzero(num_right == kind)) for kind in kinds])
    fold = np.empty(num_right.size, dtype=np.int_)
    fold[order] = np.arange(num_right.size) % folds
    return fold[of_row]


class LogisticRisk:
    """J(w, b) = sum_i log(1 + exp(-s_i (w . x_i + b))), s = +1 right, -1 wrong; convex."""

    def __init__(self, features: Floats, right: NDArray[np.bool_]) -> None:
        self._rows = np.column_stack([features, np.ones(right.size)])
        self._right = right

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return J, its gradient (p + 1,) and Hessian (p + 1, p + 1) at (w, b)."""
        z = self._rows @ point
        p = sigmoid(z)
        # log(1 + exp(-s z)) without overflow.
        losses = np.logaddexp(0.0, np.where(self._right, -z, z))
        gradient = self._rows.T @ (p - self._right)
        return float(losses.sum()), gradient, (self._rows.T * (p * (1 - p))) @ self._rows


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """Weights (p,) of the features and an intercept: P(right) = sigmoid(w . x + b)."""

    weights: Floats
    intercept: float


def sigmoid(values: ArrayLike) -> Floats:
    """Return 1 / (1 + exp(-z)) for z of any size, without overflow."""
    z = np.asarray(values, dtype=np.float64)
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


def ridge(num_features: int, strength: float = STRENGTH) -> Prior:
    """Return the L2 penalty ||w||^2 / (2 C) as a prior of weights and intercept; the intercept is free."""
    return Prior(np.zeros(num_features + 1), np.diag([1.0] * num_features + [0.0]), 1 / strength)


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    prior: Prior | None = None,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
) -> Logistic:
    """Return the minimum of `LogisticRisk` plus the prior's penalty.

    features: (n, p). labels: (n,) in {0, 1}. prior: of (w, b); None: `ridge`. low <= high: bounds of the
    weights, (p,) or a scalar; the intercept has no bounds. Raises ValueError for features that are not finite
    or do not match the labels, or for labels of one kind, unless the prior penalises the intercept.
    """
    rows, right = np.asarray(features, dtype=np.float64), verdicts(labels)
    if rows.ndim != 2 or rows.shape[0] != right.size or not np.isfinite(rows).all():
        raise ValueError("features must be a finite matrix with one row per label")
    weights = rows.shape[1]
    prior = ridge(weights) if prior is None else prior
    start = prior.center
    if not prior.hessian[-1, -1]:
        if right.all() or not right.any():
            raise ValueError("labels of one kind only have no logistic regression")
        # The search starts at the best intercept without features, the base rate.
        start = np.append(start[:-1], np.log(right.mean()) - np.log1p(-right.mean()))
    least = np.append(np.broadcast_to(low, weights), -np.inf)
    most = np.append(np.broadcast_to(high, weights), np.inf)
    end = minimize(drawn_to(LogisticRisk(rows, right), prior), start, least, most)
    return Logistic(end.point[:-1], float(end.point[-1]))


def log_losses(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Return -log of the probability of each observed label, (n,), in nats, at most 34.5. Lower = better.

    >>> log_losses([0.5, 1.0], [1, 1]).round(4).tolist()
    [0.6931, 0.0]
    """
    p, right = np.asarray(probabilities, dtype=np.float64), verdicts(labels)
    happened = np.clip(np.where(right, p, 1 - p), MIN_PROBABILITY, 1.0)
    return np.asarray(0.0 - np.log(happened))  # unary minus would give -0.0 for certainty


def log_loss(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of `log_losses`, in nats. Lower = better; a proper score."""
    return float(log_losses(probabilities, labels).mean())


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean squared error of probabilities (n,) for labels (n,), in [0, 1]. Lower = better.

    Source: Brier, *Verification of Forecasts Expressed in Terms of Probability*, 1950.
    """
    gaps = np.asarray(probabilities, dtype=np.float64) - verdicts(labels)
    return float(np.square(gaps).mean())


def logit_probability(probability: ArrayLike) -> Floats:
    """Return log(p / (1 - p)) of Born probabilities p(y) in [0, 1], clipped to [1e-6, 1 - 1e-6] first."""
    p = np.clip(np.asarray(probability, dtype=np.float64), PROBABILITY_CLIP, 1 - PROBABILITY_CLIP)
    return np.asarray(np.log(p) - np.log1p(-p))


def logit_self_check(p_true: ArrayLike) -> Floats:
    """Return log(t / (1 - t)) of P(True) t in [0, 1], clipped to [1e-4, 1 - 1e-4] first."""
    t = np.clip(np.asarray(p_true, dtype=np.float64), CHECK_CLIP, 1 - CHECK_CLIP)
    return np.asarray(np.log(t) - np.log1p(-t))


def agreement(lambda_max: ArrayLike, probability: ArrayLike) -> Floats:
    """Return how far the answers agree with texts (n,), in logits. Higher = more likely right.

    lambda_max: of the served spectrum, in (0, 1]. probability: p(y) of the text, in [0, lambda_max].
    k = sqrt(p(y) / lambda_max) is 1 for a text equal to the dominant eigenvector. A text that agrees with a
    right eigenvector is right. A text that differs from a wrong eigenvector is right with probability
    `OTHERWISE`. The agreement rises with p(y).

    >>> sigmoid(agreement([0.9, 0.9, 0.9], [0.9, 0.225, 0.0])).round(4).tolist()
    [0.9, 0.4525, 0.005]
    """
    top = np.maximum(np.asarray(lambda_max, dtype=np.float64), PROBABILITY_CLIP)
    alike = np.sqrt(np.clip(np.asarray(probability, dtype=np.float64) / top, 0.0, 1.0))
    otherwise = np.minimum(OTHERWISE * (1 - top), top)
    return logit_probability(top * alike + otherwise * (1 - alike))


@dataclass(frozen=True, slots=True)
class CorrectnessModel:
    """P(correct) = sigmoid(intercept + sum_j weights_j (x_j - means_j) / scales_j).

    features: names of the x_j, in the order of the other fields. lows, highs: range of the rows (`BOUNDS`),
    to which features are clipped because the rows have no data beyond it. The agreement, and the self-check
    beside it, have mean 0, scale 1 and no such bounds. A fitted P(correct) rises with the agreement and, if
    rows differ in it, with p(y). It never falls with the self-check and with log-probabilities, and never
    rises with entropy.
    """

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def predict(self, columns: Columns) -> Floats:
        """Return P(correct) (n,) in [0, 1] from columns (n,) by name. Higher = more likely right.

        Columns that are not features are ignored. Raises KeyError for a missing column.
        """
        within = np.clip(_table(columns, self.features), self.lows, self.highs)
        return sigmoid((within - self.means) / self.scales @ np.array(self.weights) + self.intercept)


_EXTREME = float(-logit_probability(0.0))


@dataclass(frozen=True, slots=True)
class Scores:
    """Proper scores of held-out predictions. Lower = better."""

    log_loss: float
    brier: float


@dataclass(frozen=True, slots=True, eq=False)
class CorrectnessFit:
    """The model of P(correct) that the verdicts of a dev set support.

    model: fitted on all rows, or None. why_none: the reason for None, else None. num_right, num_wrong: number
    of verdicts. held_out: (n,) P(correct) of each row by a model selected and fitted on the other folds, for
    an AUROC or a diagram. scores: scores of held_out. base_rate: scores of the other folds' share of right
    rows. The last three are None if no model was tried.
    """

    model: CorrectnessModel | None
    why_none: WhyNone | None
    num_right: int
    num_wrong: int
    base_rate: Scores | None = None
    scores: Scores | None = None
    held_out: Floats | None = None


def _table(columns: Columns, names: Sequence[str]) -> Floats:
    """Return the named columns as a matrix (n, p)."""
    return np.column_stack([np.asarray(columns[name], dtype=np.float64) for name in names])


def nested_sets(available: Sequence[str] | Columns) -> list[tuple[str, ...]]:
    """Return the feature sets to try: the first available one of `FEATURES`, then one more each time.

    With the agreement, all available features are used.

    >>> nested_sets(["entropy", "logit_probability"])
    [('logit_probability',), ('logit_probability', 'entropy')]
    """
    names = tuple(name for name in FEATURES if name in available)
    return [names[:size] for size in range(len(names) if AGREEMENT in names else 1, len(names) + 1)]


def fit_model(
    columns: Columns, labels: ArrayLike, features: Sequence[str], known: CorrectnessModel | None = None
) -> CorrectnessModel:
    """Return the model of the named features, fitted on all rows (method, sections 8 and 13).

    Weights stay within `MIN_WEIGHT` and `MAX_WEIGHT`. With the agreement, the prior of weights and intercept
    is that of `WEIGHT_PRIOR`; without it, weights are centered at 0. A constant feature gets weight 0, except
    those of `WEIGHT_PRIOR`. known: the center of the prior instead, if it has these features. Raises
    ValueError as `fit_logistic` does.
    """
    rows = _table(columns, features)
    lows, highs = np.quantile(rows, BOUNDS, axis=0)
    means, spread = rows.mean(axis=0), rows.std(axis=0)
    # Vectors are float32: differences between equal texts are rounding, not spread. A weight on them, kept
    # above 0 by its bound, would turn noise into certainty.
    constant = spread <= NO_SPREAD * np.maximum(np.abs(means), 1.0)
    scales = np.where(constant, 1.0, spread)
    prior = ridge(len(features))
    if AGREEMENT in features:
        prior.hessian[-1, -1] = OFFSET_SPREAD**-2
        for at, name in enumerate(features):
            means[at], scales[at], constant[at] = 0.0, 1.0, False
            lows[at], highs[at] = -_EXTREME, _EXTREME
            prior.center[at], deviation = WEIGHT_PRIOR[name]
            prior.hessian[at, at] = deviation**-2
        if known is not None and known.features == tuple(features):
            prior = _around(known)
    logistic = fit_logistic(
        (rows - means) / scales,
        labels,
        prior=prior,
        # Scales are positive, so a bound on the weight of a standardised feature bounds the raw weight, too.
        low=[MIN_WEIGHT.get(name, -np.inf) for name in features],
        high=[MAX_WEIGHT.get(name, np.inf) for name in features],
    )
    return CorrectnessModel(
        tuple(features),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(np.where(constant, 0.0, logistic.weights).tolist()),
        intercept=logistic.intercept,
        lows=tuple(lows.tolist()),
        highs=tuple(highs.tolist()),
    )


def _around(known: CorrectnessModel) -> Prior:
    """Return the prior around a model of raw features."""
    spreads = np.array([KNOWN_WEIGHT_SPREAD] * len(known.weights) + [KNOWN_OFFSET_SPREAD])
    return Prior(np.array([*known.weights, known.intercept]), np.diag(spreads**-2), 1.0)


def base_rate(labels: ArrayLike) -> float:
    """Return the share of right rows in (0, 1), with half a verdict of either kind added.

    Without this half, ten wrong answers would give a base rate of 0.
    Source: Krichevsky and Trofimov, *The Performance of Universal Encoding*, 1981.

    >>> base_rate([1, 0, 0, 0])
    0.3
    """
    right = verdicts(labels)
    return float((right.sum() + 0.5) / (right.size + 1))


def held_out_predictions(
    columns: Columns,
    labels: ArrayLike,
    features: Sequence[str],
    fold: Ints,
    known: CorrectnessModel | None = None,
) -> Floats:
    """Return P(correct) (n,) of each row by the model of the other folds. fold: (n,).

    It is the base rate of the other folds if there are no features, or if their verdicts are of one kind and
    the agreement is not a feature.
    """
    right, predicted = verdicts(labels), np.empty(fold.size)
    for number in np.unique(fold):
        held = fold == number
        predicted[held] = _predictions(columns, right, features, held, known)
    return predicted


def _predictions(
    columns: Columns,
    right: NDArray[np.bool_],
    features: Sequence[str],
    held: NDArray[np.bool_],
    known: CorrectnessModel | None,
) -> Floats:
    """Return P(correct) of the rows held out (mask) by the model of the other rows."""
    others = right[~held]
    if not features or (AGREEMENT not in features and (others.all() or not others.any())):
        return np.full(np.count_nonzero(held), base_rate(others))
    # Means and scales also exclude held-out rows, so that nothing leaks.
    return fit_model(_rows(columns, ~held), others, features, known).predict(_rows(columns, held))


def _rows(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    return {name: np.asarray(column)[chosen] for name, column in columns.items()}


def _checked(columns: Columns, size: int) -> dict[str, Floats]:
    """Return the columns that are features. Raises ValueError if there are none or they are unusable."""
    checked = {name: np.asarray(columns[name], dtype=np.float64) for name in FEATURES if name in columns}
    if not checked:
        raise ValueError("the columns hold none of the features")
    if not all(column.shape == (size,) and np.isfinite(column).all() for column in checked.values()):
        raise ValueError("every feature needs one finite value per verdict")
    return checked


def _beats(ours: Floats, base: Floats, right: NDArray[np.bool_], groups: Ints) -> bool:
    """Return True if predictions (n,) beat the base rate in log loss by `MIN_GAIN` standard errors."""
    gains = log_losses(base, right) - log_losses(ours, right)
    # Standard error of a mean over clusters; the usual one if each row is its own cluster.
    sums = np.bincount(groups, weights=gains - gains.mean())
    return bool(gains.mean() > MIN_GAIN * sums.std(ddof=1) * np.sqrt(sums.size) / gains.size)


def best_features(columns: Columns, labels: ArrayLike, fold: Ints) -> tuple[str, ...]:
    """Return the nested feature set of lowest log loss over these folds (n,); ties go to the smallest."""
    return min(
        nested_sets(columns),
        key=lambda features: log_loss(held_out_predictions(columns, labels, features, fold), labels),
    )


def fit_correctness(
    columns: Columns,
    labels: ArrayLike,
    fold: Ints,
    *,
    by_fold: Sequence[Columns] | None = None,
    groups: ArrayLike | None = None,
    known: CorrectnessModel | None = None,
) -> CorrectnessFit:
    """Return the model of P(correct) fitted on all rows, or the reason for none.

    There is a model only if one is `known`, or if the held-out P(correct) beats the base rate by `MIN_GAIN`
    standard errors of the paired difference. The comparison is not optimistic: the model that predicts a row,
    and the choice of its features, do not depend on the row.

    columns: (n,) each, finite, named as in `FEATURES`. labels: (n,) verdicts, 1 = right. fold: (n,) in 0 .. k
    - 1, the fold that holds each row out. by_fold: for each of the k folds, the columns by a map fitted
    without the fold; None: `columns` for all. groups: (n,), rows that belong together, for the standard
    error; folds should not split groups; None: each row is its own group. known: see `fit_model`. Raises
    ValueError for columns that are none of `FEATURES`, not finite or of other lengths.
    """
    right = verdicts(labels)
    checked = _checked(columns, right.size)
    counts = int(right.sum()), int((~right).sum())
    if known is not None and known.features != tuple(name for name in FEATURES if name in checked):
        known = None
    if known is None and not all(counts):
        return CorrectnessFit(None, "one_kind", *counts)
    predicted = np.empty(right.size)
    for number in np.unique(fold):
        held = fold == number
        seen = checked if by_fold is None else _checked(by_fold[number], right.size)
        features = best_features(_rows(seen, ~held), right[~held], fold[~held])
        predicted[held] = _predictions(seen, right, features, held, known)
    base = held_out_predictions({}, right, (), fold)
    beaten = known is not None or _beats(predicted, base, right, grouped(groups, right.size))
    model = None
    if beaten:
        model = fit_model(checked, right, best_features(checked, right, fold), known)
    return CorrectnessFit(
        model,
        None if beaten else "no_better_than_base_rate",
        *counts,
        Scores(log_loss(base, right), brier(base, right)),
        Scores(log_loss(predicted, right), brier(predicted, right)),
        predicted,
    )
