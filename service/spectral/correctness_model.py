"""P(correct), the probability that an answer is right (**ours**, method, section 8).

lambda_max is an agreement in meaning, no verdict. So verdicts have a model of their own: a logistic
regression with an L2 penalty on nested sets of features, the one of least cross-validated log loss, or none
where none beats the base rate. Its weights have the signs that the features' meanings give them; folds hold
right and wrong answers in equal shares.

Source of the penalty's form: scikit-learn's `LogisticRegression`, whose C this is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.fit import minimize

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Columns = Mapping[str, ArrayLike]
WhyNone = Literal["one_kind", "too_few_verdicts", "no_better_than_base_rate"]

# In the order in which nested sets take them in; a set-up without evidence has the first and the third.
FEATURES = ("logit_probability", "logit_missing_mass", "entropy", "mean_log_probability")
# Of a text judged by itself, where no answer is drawn.
FEATURES_ALONE = ("answer_log_probability_per_word",)
# Weights on the side of 0 that the quantity's meaning allows: of two texts the one that the answers bear out
# better is never less likely right. The mean log-probability has no such side: beside the missing mass it
# falls where answers are many, each of little mass, which speaks for neither.
MIN_WEIGHT = {"logit_probability": 0.0, "answer_log_probability_per_word": 0.0}
MAX_WEIGHT = {"logit_missing_mass": 0.0, "entropy": 0.0}
# Of right and of wrong answers: with fewer, a fold has less than four of a kind to be judged by.
MIN_OF_A_KIND = 20
# Standard errors by which a model must beat the base rate. Verdicts that are coin flips pass at 0 in a third
# of cases, at 0.5 in a seventh; at 1 in a twelfth, but then half of the recorded sets without evidence fail.
MIN_GAIN = 0.5
PROBABILITY_CLIP = 1e-6  # a text outside of a raw spectrum's span has probability 0, and logit -inf
STRENGTH = 1.0  # C (method, section 8), which is scikit-learn's default, too
MIN_PROBABILITY = 1e-15  # a probability of exactly 0 given to what happened would cost infinitely much


def verdicts(labels: ArrayLike) -> NDArray[np.bool_]:
    """Return labels (n,) in {0, 1} as booleans, True = right. Raises ValueError for anything else."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.size == 0 or not np.isin(values, (0, 1)).all():
        raise ValueError("verdicts must be a non-empty vector of 0 and 1")
    return values.astype(bool)


def stratified_folds(labels: ArrayLike, folds: int, rng: np.random.Generator) -> Ints:
    """Return a random fold 0 .. folds - 1 for each row (n,), both kinds spread as evenly as can be.

    The second kind begins where the first ended, so that folds are of equal size, too. Raises ValueError for
    fewer than two folds, or labels that are no verdicts.
    """
    right = verdicts(labels)
    if folds < 2:
        raise ValueError("at least two folds are needed")
    order = np.concatenate([rng.permutation(np.flatnonzero(right == kind)) for kind in (True, False)])
    fold = np.empty(right.size, dtype=np.int_)
    fold[order] = np.arange(right.size) % folds
    return fold


def stratified_split(labels: ArrayLike, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask (n,): True for a random `share` in (0, 1) of the rows of either kind, rounded.

    Raises ValueError for a share outside of (0, 1), or labels that are no verdicts.
    """
    right = verdicts(labels)
    if not 0 < share < 1:
        raise ValueError("share must be in (0, 1)")
    taken = np.zeros(right.size, dtype=np.bool_)
    for kind in (True, False):
        rows = rng.permutation(np.flatnonzero(right == kind))
        taken[rows[: round(share * rows.size)]] = True
    return taken


class LogisticRisk:
    """J(w, b) = ||w||^2 / 2 + C sum_i log(1 + exp(-s_i (w . x_i + b))), s = +1 right, -1 wrong; convex."""

    def __init__(self, features: Floats, right: NDArray[np.bool_], strength: float) -> None:
        self._rows = np.column_stack([features, np.ones(right.size)])
        self._right = right
        self._strength = strength
        self._penalty = np.append(np.ones(features.shape[1]), 0.0)  # the intercept is free

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return J, its gradient (p + 1,) and Hessian (p + 1, p + 1) at (w, b)."""
        z = self._rows @ point
        p = sigmoid(z)
        # log(1 + exp(-s z)) without overflow.
        losses = np.logaddexp(0.0, np.where(self._right, -z, z))
        value = float(self._penalty @ np.square(point)) / 2 + self._strength * float(losses.sum())
        gradient = self._penalty * point + self._strength * (self._rows.T @ (p - self._right))
        curved = (self._rows.T * (p * (1 - p))) @ self._rows
        return value, gradient, np.diag(self._penalty) + self._strength * curved


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


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    strength: float = STRENGTH,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
) -> Logistic:
    """Return the minimum of `LogisticRisk` for features (n, p) and labels (n,) in {0, 1}.

    low <= 0 <= high: bounds of the weights, (p,) or one for all; the intercept has none. Features should be
    of like scale: the penalty is the same for all. Raises ValueError for features that are not finite or of
    another length, or labels of one kind only, which no finite intercept fits.
    """
    rows, right = np.asarray(features, dtype=np.float64), verdicts(labels)
    if rows.ndim != 2 or rows.shape[0] != right.size or not np.isfinite(rows).all():
        raise ValueError("features must be a finite matrix with one row per label")
    if right.all() or not right.any():
        raise ValueError("labels of one kind only have no logistic regression")
    start = np.zeros(rows.shape[1] + 1)
    # The best intercept without features: the search begins at the base rate.
    start[-1] = np.log(right.mean()) - np.log1p(-right.mean())
    weights = rows.shape[1]
    least = np.append(np.broadcast_to(low, weights), -np.inf)
    most = np.append(np.broadcast_to(high, weights), np.inf)
    end = minimize(LogisticRisk(rows, right, strength), start, least, most)
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


@dataclass(frozen=True, slots=True)
class CorrectnessModel:
    """P(correct) = sigmoid(intercept + sum_j weights_j (x_j - means_j) / scales_j): numbers only.

    features: names of the x_j, in the order of means, scales and weights. Fitted, it rises with a text's
    p(y) or stays, and falls with missing mass and entropy or stays.
    """

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float

    def predict(self, columns: Columns) -> Floats:
        """Return P(correct) (n,) in [0, 1] from columns (n,) by name; others than ours are ignored.

        Higher = more likely right. Raises KeyError for a missing column.
        """
        rows = _table(columns, self.features)
        standard = (rows - np.array(self.means)) / np.array(self.scales)
        return sigmoid(standard @ np.array(self.weights) + self.intercept)


@dataclass(frozen=True, slots=True)
class Scores:
    """Cross-validated proper scores of one set of features (none: the base rate). Lower = better."""

    features: tuple[str, ...]
    log_loss: float
    brier: float


@dataclass(frozen=True, slots=True, eq=False)
class CorrectnessFit:
    """What the verdicts of a dev set allow.

    model: fitted on all rows, or None; why_none: then the reason, else None.
    num_right, num_wrong: verdicts; base_rate, candidates: cross-validated scores, empty where none was tried.
    held_out: (n,) out-of-fold P(correct) of the features of least log loss, for an AUROC or a diagram; None
    where none was tried. Its log loss is that of the best of up to four, so slightly too good.
    """

    model: CorrectnessModel | None
    why_none: WhyNone | None
    num_right: int
    num_wrong: int
    base_rate: Scores | None = None
    candidates: tuple[Scores, ...] = ()
    held_out: Floats | None = None


def _table(columns: Columns, names: Sequence[str]) -> Floats:
    """Return the named columns as a matrix (n, p)."""
    return np.column_stack([np.asarray(columns[name], dtype=np.float64) for name in names])


def nested_sets(available: Sequence[str] | Columns) -> list[tuple[str, ...]]:
    """Return the sets of features to try: the first of `FEATURES` that are available, and one more each time.

    >>> nested_sets(["entropy", "logit_probability"])
    [('logit_probability',), ('logit_probability', 'entropy')]
    """
    names = tuple(name for name in (*FEATURES, *FEATURES_ALONE) if name in available)
    return [names[:size] for size in range(1, len(names) + 1)]


def fit_model(
    columns: Columns, labels: ArrayLike, features: Sequence[str], *, strength: float = STRENGTH
) -> CorrectnessModel:
    """Return the model of the named features, fitted on all rows (method, section 8; C = `strength`).

    Weights keep `MIN_WEIGHT` and `MAX_WEIGHT`. A feature that is the same in all rows gets weight 0.
    Raises ValueError as `fit_logistic` does.
    """
    rows = _table(columns, features)
    means, spread = rows.mean(axis=0), rows.std(axis=0)
    # The mean of equal numbers is off by their last bits; what is left of them is no spread.
    constant = spread <= 1e-12 * np.maximum(np.abs(means), 1.0)
    scales = np.where(constant, 1.0, spread)
    low = [MIN_WEIGHT.get(name, -np.inf) for name in features]
    high = [MAX_WEIGHT.get(name, np.inf) for name in features]
    # Scales are positive: what bounds the weight of a standardised feature bounds that of the feature.
    logistic = fit_logistic((rows - means) / scales, labels, strength=strength, low=low, high=high)
    return CorrectnessModel(
        tuple(features),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(np.where(constant, 0.0, logistic.weights).tolist()),
        intercept=logistic.intercept,
    )


def held_out_predictions(
    columns: Columns, labels: ArrayLike, features: Sequence[str], fold: Ints, *, strength: float = STRENGTH
) -> Floats:
    """Return P(correct) (n,) from the model of the other folds (n,); no features: their base rate."""
    right, predicted = verdicts(labels), np.empty(fold.size)
    for number in np.unique(fold):
        held = fold == number
        rest = {name: np.asarray(columns[name])[~held] for name in features}
        if features:
            # Means and scales, too, are of the other folds: nothing of a held-out row may leak in.
            model = fit_model(rest, right[~held], features, strength=strength)
            predicted[held] = model.predict({name: np.asarray(columns[name])[held] for name in features})
        else:
            predicted[held] = right[~held].mean()
    return predicted


def _checked(columns: Columns, size: int) -> dict[str, Floats]:
    """Return the columns that are features, or raise ValueError where there are none or they are unusable."""
    every = (*FEATURES, *FEATURES_ALONE)
    known = {one: np.asarray(columns[one], dtype=np.float64) for one in every if one in columns}
    if not known:
        raise ValueError("the columns hold none of the features")
    if not all(column.shape == (size,) and np.isfinite(column).all() for column in known.values()):
        raise ValueError("every feature needs one finite value per verdict")
    return known


def too_few(num_right: int, num_wrong: int) -> CorrectnessFit | None:
    """Return that so many right and wrong verdicts, >= 0, are too few for a model; None where they do."""
    if min(num_right, num_wrong) >= MIN_OF_A_KIND:
        return None
    one_kind = min(num_right, num_wrong) == 0 < max(num_right, num_wrong)
    return CorrectnessFit(None, "one_kind" if one_kind else "too_few_verdicts", num_right, num_wrong)


def _beats(ours: Floats, base: Floats, right: NDArray[np.bool_]) -> bool:
    """Return whether our predictions (n,) have a lower log loss than the base rate's, and not by chance."""
    gains = log_losses(base, right) - log_losses(ours, right)
    return bool(gains.mean() > MIN_GAIN * gains.std(ddof=1) / np.sqrt(gains.size))


def fit_correctness(
    columns: Columns,
    labels: ArrayLike,
    *,
    rng: np.random.Generator,
    folds: int = 5,
    strength: float = STRENGTH,
) -> CorrectnessFit:
    """Return the model of least cross-validated log loss among nested sets of features, or none, and why.

    None unless it beats the base rate by `MIN_GAIN` standard errors of the paired difference.
    columns: by names of `FEATURES`, (n,) each, finite; labels: (n,) verdicts, 1 = right. All sets and the
    base rate are judged on the same stratified folds. Raises ValueError for columns that are none of
    `FEATURES`, not finite or of other lengths.
    """
    right = verdicts(labels)
    known = _checked(columns, right.size)
    num_right, num_wrong = int(right.sum()), int((~right).sum())
    if (none := too_few(num_right, num_wrong)) is not None:
        return none
    fold, sets = stratified_folds(right, folds, rng), nested_sets(known)
    drawn = {one: held_out_predictions(known, right, one, fold, strength=strength) for one in [(), *sets]}
    scores = {one: Scores(one, log_loss(p, right), brier(p, right)) for one, p in drawn.items()}
    # Of equal ones the first, which is the smallest set.
    best = min(sets, key=lambda one: scores[one].log_loss)
    beaten = _beats(drawn[best], drawn[()], right)
    model = fit_model(known, right, best, strength=strength) if beaten else None
    why: WhyNone | None = None if beaten else "no_better_than_base_rate"
    tried = tuple(scores[one] for one in sets)
    return CorrectnessFit(model, why, num_right, num_wrong, scores[()], tried, drawn[best])
