"""P(correct), the probability that a text is right (**ours**, method, sections 8 and 18).

Of an answer it is the calibrated agreement of the answers drawn, `agreement`, moved and stretched as far as
verdicts say: two parameters with a prior that leaves it as it is. Without a verdict it is the agreement
itself. Of claims it is a logistic regression on features that are standardised, with an L2 penalty, the
nested set of least cross-validated log loss. No model is served that does not beat the base rate. Folds hold
right and wrong answers in equal shares.

Source of the penalty's form: scikit-learn's `LogisticRegression`, whose C this is. Of moving and stretching
logits: Platt, *Probabilistic Outputs for Support Vector Machines*, 1999. Of nested cross-validation: Varma
and Simon, *Bias in Error Estimation when Using Cross-Validation for Model Selection*, 2006.
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
FEATURES_OF_CLAIMS = ("logit_probability", "entropy")
# Of a claim: the log-probability of the tokens of its facts, that of the least likely one, and of all tokens.
FEATURES_OF_TOKENS = ("fact_log_probability", "least_log_probability", "log_probability")
# In the order in which nested sets take them in. The last three are of an answer, by P(correct) of claims.
FEATURES = (
    AGREEMENT,
    *FEATURES_OF_CLAIMS,
    *FEATURES_OF_TOKENS,
    *("least_logit", "mean_logit", "log_number"),
)
# Probability that a differing text is right when the answers are wrong. On recorded answers that were not
# drawn for the score, the log loss is within .001 nats with .03 and .08.
OTHERWISE = 0.05
# Standard deviations of the priors of slope and offset, around 1 and 0. On the recorded sets half and twice
# of these cost up to .02 nats with 10 to 100 verdicts.
SLOPE_SPREAD, OFFSET_SPREAD = 0.25, 1.0
# Weights on the side of 0 that the quantity's meaning allows.
MIN_WEIGHT = {
    AGREEMENT: 0.1,
    "logit_probability": 0.1,
    "fact_log_probability": 0.0,
    "least_log_probability": 0.0,
    "log_probability": 0.0,
    "least_logit": 0.0,
    "mean_logit": 0.0,
}
MAX_WEIGHT = {"entropy": 0.0, "log_number": 0.0}
# Standard errors by which a model must beat the base rate. Verdicts that are coin flips pass at 0 in a third
# of cases, at 0.5 in a seventh; at 1 in a twelfth, but then half of the recorded sets without evidence fail.
# Of ten verdicts, a tenth (half of them right) to three tenths (a fifth right) pass at 0.5.
MIN_GAIN = 0.5
PROBABILITY_CLIP = 1e-6  # a text outside of a raw spectrum's span has probability 0, and logit -inf
STRENGTH = 1.0  # C (method, section 8), which is scikit-learn's default, too
NO_SPREAD = 1e-5
# Quantiles of a feature among the rows, beyond which a model says no more than at them: extrapolated, it was
# sure of an essay that rows with answers of a few words had fitted.
BOUNDS = (0.01, 0.99)
MIN_PROBABILITY = 1e-15  # a probability of exactly 0 given to what happened would cost infinitely much


def verdicts(labels: ArrayLike) -> NDArray[np.bool_]:
    """Return labels (n,) in {0, 1} as booleans, True = right. Raises ValueError for anything else."""
    values = np.asarray(labels)
    known = values.dtype == bool or np.isin(values, (0, 1)).all()
    if values.ndim != 1 or values.size == 0 or not known:
        raise ValueError("verdicts must be a non-empty vector of 0 and 1")
    return values.astype(bool)


def stratified_folds(
    labels: ArrayLike, folds: int, rng: np.random.Generator, groups: ArrayLike | None = None
) -> Ints:
    """Return a random fold 0 .. folds - 1 for each row (n,), both kinds spread as evenly as can be.

    groups: (n,), those that are held out whole; None: each row is one. They are of one kind where as many of
    their rows are right. Each kind begins where the one before ended, so that folds are of equal size, too.
    Raises ValueError for fewer than two folds, or labels that are no verdicts.
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
    """Return the minimum of `LogisticRisk` and a prior for features (n, p) and labels (n,) in {0, 1}.

    prior: of (w, b); None: `ridge`. low <= high: bounds of the weights, (p,) or one for all; the intercept
    has none. Raises ValueError for features that are not finite or of another length, or labels of one kind
    only, unless the prior bounds the intercept.
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
        # The best intercept without features: the search begins at the base rate.
        start = np.append(start[:-1], np.log(right.mean()) - np.log1p(-right.mean()))
    least = np.append(np.broadcast_to(low, weights), -np.inf)
    most = np.append(np.broadcast_to(high, weights), np.inf)
    end = minimize(drawn_to(LogisticRisk(rows, right), prior), start, least, most)
    return Logistic(end.point[:-1], float(end.point[-1]))


def log_losses(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Return -log of the probability given to what happened, (n,), in nats, at most 34.5. Lower = better.

    >>> log_losses([0.5, 1.0], [1, 1]).round(4).tolist()
    [0.6931, 0.0]
    """
    p, right = np.asarray(probabilities, dtype=np.float64), verdicts(labels)
    happened = np.clip(np.where(right, p, 1 - p), MIN_PROBABILITY, 1.0)
    return np.asarray(0.0 - np.log(happened))  # a minus sign alone would give -0.0 for certainty


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


def agreement(lambda_max: ArrayLike, probability: ArrayLike) -> Floats:
    """Return what the answers say of texts (n,), in logits. Higher = more likely right.

    lambda_max: of the spectrum served, in (0, 1]; probability: p(y) of the text, in [0, lambda_max].
    k = sqrt(p(y) / lambda_max) is 1 for a text equal to the dominant eigenvector. A text is right if it
    agrees with that eigenvector and the eigenvector is right. If both differ and the eigenvector is wrong,
    the text is right with probability `OTHERWISE`. It rises with p(y).

    >>> sigmoid(agreement([0.9, 0.9, 0.9], [0.9, 0.225, 0.0])).round(4).tolist()
    [0.9, 0.4525, 0.005]
    """
    top = np.maximum(np.asarray(lambda_max, dtype=np.float64), PROBABILITY_CLIP)
    alike = np.sqrt(np.clip(np.asarray(probability, dtype=np.float64) / top, 0.0, 1.0))
    otherwise = np.minimum(OTHERWISE * (1 - top), top)
    return logit_probability(top * alike + otherwise * (1 - alike))


@dataclass(frozen=True, slots=True)
class CorrectnessModel:
    """P(correct) = sigmoid(intercept + sum_j weights_j (x_j - means_j) / scales_j): numbers only.

    features: names of the x_j, in the order of the rest. lows, highs: within which the rows had them
    (`BOUNDS`); what lies beyond counts as the bound, since rows show nothing of it. The agreement is not
    bounded so: it has mean 0 and scale 1. Fitted, it rises with the agreement and with p(y) where rows differ
    in it, rises with log-probabilities or stays, and falls with entropy or stays.
    """

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def predict(self, columns: Columns) -> Floats:
        """Return P(correct) (n,) in [0, 1] from columns (n,) by name; others than ours are ignored.

        Higher = more likely right. Raises KeyError for a missing column.
        """
        within = np.clip(_table(columns, self.features), self.lows, self.highs)
        return sigmoid((within - self.means) / self.scales @ np.array(self.weights) + self.intercept)


_EXTREME = float(-logit_probability(0.0))
# The model of no verdict: P(correct) is the agreement itself.
NO_VERDICTS = CorrectnessModel((AGREEMENT,), (0.0,), (1.0,), (1.0,), 0.0, (-_EXTREME,), (_EXTREME,))


@dataclass(frozen=True, slots=True)
class Scores:
    """Proper scores of predictions of rows that had no part in them. Lower = better."""

    log_loss: float
    brier: float


@dataclass(frozen=True, slots=True, eq=False)
class CorrectnessFit:
    """What the verdicts of a dev set allow.

    model: fitted on all rows, or None; why_none: then the reason, else None.
    num_right, num_wrong: verdicts. held_out: (n,) P(correct) of each row by what was chosen and fitted on
    the other folds, for an AUROC or a diagram; scores: of these; base_rate: of the other folds' share of
    right ones. None where nothing was tried.
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
    """Return the sets of features to try: the first of `FEATURES` available, and one more each time.

    >>> nested_sets(["entropy", "logit_probability"])
    [('logit_probability',), ('logit_probability', 'entropy')]
    """
    names = tuple(name for name in FEATURES if name in available)
    return [names[:size] for size in range(1, len(names) + 1)]


def fit_model(columns: Columns, labels: ArrayLike, features: Sequence[str]) -> CorrectnessModel:
    """Return the model of the named features, fitted on all rows (method, sections 8 and 18).

    Weights keep `MIN_WEIGHT` and `MAX_WEIGHT`. The agreement's weight is drawn to 1, and with it the
    intercept to 0; all others to 0. A feature that is the same in all rows gets weight 0, but the agreement.
    Raises ValueError as `fit_logistic` does.
    """
    rows = _table(columns, features)
    lows, highs = np.quantile(rows, BOUNDS, axis=0)
    means, spread = rows.mean(axis=0), rows.std(axis=0)
    # Vectors are float32: what their rounding leaves of equal texts is no spread. A weight of it, which the
    # bound would keep above 0, would turn noise into certainty.
    constant = spread <= NO_SPREAD * np.maximum(np.abs(means), 1.0)
    scales = np.where(constant, 1.0, spread)
    prior = ridge(len(features))
    if AGREEMENT in features:
        at = tuple(features).index(AGREEMENT)
        means[at], scales[at], constant[at] = 0.0, 1.0, False
        lows[at], highs[at] = -_EXTREME, _EXTREME
        center, hessian = prior.center, prior.hessian
        center[at], hessian[at, at], hessian[-1, -1] = 1.0, SLOPE_SPREAD**-2, OFFSET_SPREAD**-2
    logistic = fit_logistic(
        (rows - means) / scales,
        labels,
        prior=prior,
        # Scales are positive: what bounds the weight of a standardised feature bounds that of the feature.
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


def base_rate(labels: ArrayLike) -> float:
    """Return the share of right ones in (0, 1), half a verdict of either kind added.

    Without that half, ten wrong answers would promise for ever that there is no right one.
    Source: Krichevsky and Trofimov, *The Performance of Universal Encoding*, 1981.

    >>> base_rate([1, 0, 0, 0])
    0.3
    """
    right = verdicts(labels)
    return float((right.sum() + 0.5) / (right.size + 1))


def held_out_predictions(columns: Columns, labels: ArrayLike, features: Sequence[str], fold: Ints) -> Floats:
    """Return P(correct) (n,) from the model of the other folds (n,); no features: their base rate.

    The base rate, too, where they hold one kind only, unless the agreement is a feature.
    """
    right, predicted = verdicts(labels), np.empty(fold.size)
    for number in np.unique(fold):
        held = fold == number
        predicted[held] = _predictions(columns, right, features, held)
    return predicted


def _predictions(
    columns: Columns,
    right: NDArray[np.bool_],
    features: Sequence[str],
    held: NDArray[np.bool_],
) -> Floats:
    """Return P(correct) of the rows held out (mask) from the model of the others."""
    others = right[~held]
    if not features or (AGREEMENT not in features and (others.all() or not others.any())):
        return np.full(np.count_nonzero(held), base_rate(others))
    # Means and scales, too, are of the others: nothing of a held-out row may leak in.
    return fit_model(_rows(columns, ~held), others, features).predict(_rows(columns, held))


def _rows(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    return {name: np.asarray(column)[chosen] for name, column in columns.items()}


def _checked(columns: Columns, size: int) -> dict[str, Floats]:
    """Return the columns that are features, or raise ValueError where there are none or they are unusable."""
    known = {one: np.asarray(columns[one], dtype=np.float64) for one in FEATURES if one in columns}
    if not known:
        raise ValueError("the columns hold none of the features")
    if not all(column.shape == (size,) and np.isfinite(column).all() for column in known.values()):
        raise ValueError("every feature needs one finite value per verdict")
    return known


def _beats(ours: Floats, base: Floats, right: NDArray[np.bool_], groups: Ints) -> bool:
    """Return whether our predictions (n,) have a lower log loss than the base rate's, and not by chance."""
    gains = log_losses(base, right) - log_losses(ours, right)
    # Of a mean over clusters; each row its own cluster, it is the usual standard error.
    sums = np.bincount(groups, weights=gains - gains.mean())
    return bool(gains.mean() > MIN_GAIN * sums.std(ddof=1) * np.sqrt(sums.size) / gains.size)


def best_features(columns: Columns, labels: ArrayLike, fold: Ints) -> tuple[str, ...]:
    """Return the nested set of least log loss over these folds (n,); of equal ones the smallest."""
    return min(
        nested_sets(columns),
        key=lambda one: log_loss(held_out_predictions(columns, labels, one, fold), labels),
    )


def fit_correctness(
    columns: Columns,
    labels: ArrayLike,
    fold: Ints,
    *,
    by_fold: Sequence[Columns] | None = None,
    groups: ArrayLike | None = None,
) -> CorrectnessFit:
    """Return the model of P(correct) that all rows give, or none, and why.

    None unless P(correct) held out beats the base rate by `MIN_GAIN` standard errors of the paired
    difference. Nothing of it is optimistic: a row has no part in the model that predicts it, nor in the
    choice of that model's features.
    columns: by names of `FEATURES`, (n,) each, finite; labels: (n,) verdicts, 1 = right. fold: (n,)
    which of 0 .. k - 1 holds each row out. by_fold: k times the columns, as a map fitted without that fold
    has them; left out, they are the same for all. groups: (n,), rows that go together, which folds should
    keep whole: the standard error is over them; None: each row is one. Raises ValueError for columns that are
    none of `FEATURES`, not finite or of other lengths.
    """
    right = verdicts(labels)
    known = _checked(columns, right.size)
    counts = int(right.sum()), int((~right).sum())
    if not all(counts):
        return CorrectnessFit(None, "one_kind", *counts)
    predicted = np.empty(right.size)
    for number in np.unique(fold):
        held = fold == number
        seen = known if by_fold is None else _checked(by_fold[number], right.size)
        features = best_features(_rows(seen, ~held), right[~held], fold[~held])
        predicted[held] = _predictions(seen, right, features, held)
    base = held_out_predictions({}, right, (), fold)
    beaten = _beats(predicted, base, right, grouped(groups, right.size))
    model = None
    if beaten:
        model = fit_model(known, right, best_features(known, right, fold))
    return CorrectnessFit(
        model,
        None if beaten else "no_better_than_base_rate",
        *counts,
        Scores(log_loss(base, right), brier(base, right)),
        Scores(log_loss(predicted, right), brier(predicted, right)),
        predicted,
    )
