"""The figures of a report, as arrays: scores served on held-out prompts, and their quality.

Each prompt is judged by fits without its fold.

To find how many answers are enough, the first m' answers of each prompt are judged as well, as a request for
m' answers would draw them. All numbers of answers judge the same text of a prompt: its `answer`, or the
dominant one of all answers (`LabelledRows`). Otherwise the number with the worst texts would have the lowest
log loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from service.calibration import fitting
from service.calibration.calibration import Calibration, Method
from service.calibration.fitting import Fitted, Stream
from service.calibration.labels import Judged
from service.spectral.correctness_model import (
    SELF_CHECK,
    fit_correctness,
    held_out_predictions,
    log_losses,
)
from service.spectral.dev_set import AnyMap, served_lambda_max
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import PriorSource, fit, no_prior
from service.spectral.resampling import (
    DEFAULT,
    Difference,
    Resamples,
    mean_difference,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Bools = NDArray[np.bool_]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map that supplies lambda_max and p(y) to P(correct): with log-probabilities, and without.
CORRECT_BY: tuple[Method, ...] = ("evidence", "depolarized")


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """P(correct) under a map for one number of answers.

    losses (log losses in nats), squares (squared errors), values (higher = more certain): (n,).
    """

    map: str
    losses: Floats
    squares: Floats
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by their first `num_samples` answers.

    right: (n,) verdicts on the judged text. scored: P(correct) under each map of `CORRECT_BY` that can be
    fitted; the base rate if no model beats it. base: (n,) losses of the base rate of the verdicts fitted on.
    why_none: why there is no P(correct) at all, else "". tokens: completion tokens per question, None if a
    draw has no count. same_text: True if the other numbers of answers judge the same text; losses on
    different texts cannot be compared. groups: as `DevSet.full_groups`.
    """

    num_samples: int
    right: Bools
    scored: Sequence[Scored]
    base: Floats
    why_none: str
    tokens: float | None
    same_text: bool = True
    groups: Ints | None = None


def sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers to compare, in ascending order. The last is always m = num_samples.

    >>> sizes(12)
    [1, 2, 3, 5, 8, 10, 12]
    """
    return [*(m for m in SIZES if m < num_samples), num_samples]


# How many answers to draw.


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A number of answers and a map to choose, with their losses and cost.

    map: "evidence" uses log-probabilities, the others do not. losses: (n,) per prompt, in nats. tokens: per
    question, None if unknown.
    """

    num_samples: int
    map: str
    losses: Floats
    tokens: float | None = None

    @property
    def loss(self) -> float:
        """The mean loss in nats. Lower = better."""
        return float(self.losses.mean())

    @property
    def words(self) -> str:
        """The number of answers and the map, in words."""
        if not self.num_samples:
            return "0 answers, using the log-probability of the answer itself"
        answers = "1 answer" if self.num_samples == 1 else f"{self.num_samples} answers"
        return f"{answers}, {'using' if self.map == 'evidence' else 'without'} log-probabilities"

    def gap_of(self, losses: Floats) -> tuple[float, float]:
        """Return the mean of losses (n,) - self.losses in nats, paired by prompt, and its standard error."""
        gaps = losses - self.losses
        return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(gaps.size))


def recommend(candidates: Sequence[Candidate], base: Floats) -> tuple[str, Candidate | None]:
    """Return the recommended number of answers as a sentence, and its candidate, or None without one.

    The recommendation is the candidate with the fewest answers among those with a mean loss within one
    standard error of the lowest, paired by prompt; ties go to the lower loss. Losses are log losses of
    P(correct). base: losses (n,) of the base rate, which needs no answers. If it is within one standard error
    of the best, too, these prompts are too few to compare numbers of answers.
    """
    if len({candidate.num_samples for candidate in candidates}) < 2:
        return _nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda candidate: (candidate.loss, candidate.num_samples))
    gap = "difference {:+.4f}, standard error {:.4f}"
    value, error = best.gap_of(base)
    if value <= error:
        return _nothing(
            f"the lowest log loss of P(correct) ({best.loss:.3f}, with {best.words}) is within one standard "
            f"error of the base rate's ({gap.format(value, error)})"
        )
    gaps = [(candidate, *best.gap_of(candidate.losses)) for candidate in candidates]
    close = [(candidate, value, error) for candidate, value, error in gaps if value <= error]
    chosen, value, error = min(close, key=lambda near: (near[0].num_samples, near[0].loss))
    best_words = f"; best: {best.words}, {best.loss:.3f}, {gap.format(value, error)}"
    full = max(candidates, key=lambda candidate: candidate.num_samples)
    cost = f"{chosen.tokens:.0f} tokens per question" if chosen.tokens is not None else "tokens are not known"
    if chosen.tokens is not None and full.tokens is not None and chosen.num_samples != full.num_samples:
        cost += f" instead of {full.tokens:.0f}"
    loss = f"log loss of P(correct) {chosen.loss:.3f}{'' if chosen is best else best_words}"
    return f"Recommended: {chosen.words} ({loss}); {cost}.", chosen


def _nothing(reason: str) -> tuple[str, None]:
    return f"No number of answers can be recommended: {reason}.", None


def recommended(sizes: Sequence[AtSize]) -> tuple[str, Candidate | None]:
    """Return the number of answers to request, by the log loss of P(correct), or the reason for none.

    Risk is not used: it falls with every answer, because answers span more of the possible references, so it
    would always recommend the largest number.
    """
    if why := next((at.why_none for at in sizes if at.why_none), ""):
        return _nothing(f"{why}. They are compared by P(correct), which takes right ones and wrong ones")

    def by_group(at: AtSize, losses: Floats) -> Floats:
        if at.groups is None:
            return losses
        of_row = np.unique(at.groups, return_inverse=True)[1]
        return np.asarray(np.bincount(of_row, weights=losses) / np.bincount(of_row))

    candidates = [
        Candidate(at.num_samples, score.map, by_group(at, score.losses), at.tokens)
        for at in sizes
        for score in at.scored
        if at.same_text
    ]
    return recommend(candidates, by_group(sizes[-1], sizes[-1].base))


# The figures.


class CrossValidated:
    """The figures of a fit on held-out prompts.

    fitted: the maps fitted on the prompts. Each prompt is judged by the maps that were fitted without its
    fold; "active" is last, if there is one.
    """

    def __init__(self, fitted: Fitted, *, seed: int = 0, resamples: Resamples = DEFAULT) -> None:
        self.rows, self.fitted, self.priors = fitted.rows, fitted.maps, fitted.priors
        self.models = fitted.models
        self.seed, self.resamples = seed, resamples
        self._first_answers: dict[int, AtSize] = {}

    def rng(self, stream: int) -> np.random.Generator:
        """Return the generator of one experiment. It does not depend on the other experiments that run."""
        return fitting.rng(self.seed, stream)

    @property
    def why_no_evidence(self) -> str | None:
        """Why no evidence map was fitted, as a sentence; None if one was."""
        return self.rows.why_no_evidence()

    @property
    def c1(self) -> Floats:
        """u_1^T Y u_1 of each prompt (n,), 0..1."""
        # Only rounding puts values above 1, and diagrams reject those.
        return np.clip(self.rows.dev.alignment[:, 0], 0.0, 1.0)

    def lambda_max(self, name: str) -> Floats:
        """Return the largest eigenvalue (n,) that a map serves for each prompt, 0..1."""
        largest, fold = np.empty(len(self.rows)), self.fitted.fold
        for k, map_ in enumerate(self.fitted.maps[name]):
            largest[fold == k] = served_lambda_max(map_, self.rows.dev.take(fold == k))
        return np.clip(largest, 0.0, 1.0)

    def difference(self, second: Floats, first: Floats) -> Difference:
        """Return the mean of second - first (n,), paired by prompt. All differences share their resamples."""
        random, again = self.rng(Stream.DIFFERENCES), self.resamples.difference
        return mean_difference(second, first, random, resamples=again, groups=self.rows.groups)

    def squared_gaps(self, name: str) -> Floats:
        """Return (lambda_max - u_1^T Y u_1)^2 (n,) of a map. The mean is its projection Brier."""
        return np.square(self.lambda_max(name) - self.c1)

    @property
    def constant_brier(self) -> float:
        """The projection Brier of a constant confidence: the mean of u_1^T Y u_1 over the other folds."""
        c1, fold = self.c1, self.fitted.fold
        others = [c1[fold != k].mean() for k in fold]
        return float(np.square(others - c1).mean())

    def correct_by(self, calibration: Calibration) -> Floats | None:
        """Return P(correct) (n,) of the texts judged here, by the model of another calibration.

        It uses the first answers, up to the number that the calibration serves. None if the calibration has
        no model for this number, or if its model needs log-probabilities or self-checks and these rows have
        none.
        """
        size = min(self.rows.material.num_samples, calibration.num_samples)
        selector, rows = calibration.selectors.get(size), self.rows.at(size, one_text=True)
        if selector is None or selector.map is None:
            return None
        if isinstance(selector.map, EvidenceMap) and rows.rows.missing_mass is None:
            return None
        is_checked = SELF_CHECK in selector.model.features
        if is_checked and calibration.fingerprint.self_check != self.rows.checked_by:
            return None
        return selector.model.predict(rows.columns(selector.map))

    def first_answers(self, num_samples: int) -> AtSize:
        """Return the prompts judged by the first answers of each prompt.

        With 0, by the log-probability of the judged text, which every prompt must have.
        """
        if num_samples not in self._first_answers:
            judged = self.rows.at(num_samples, one_text=True)
            self._first_answers[num_samples] = self._judge(judged, num_samples)
        return self._first_answers[num_samples]

    @property
    def judges_without_answers(self) -> bool:
        """Whether every judged text has a log-probability of its own."""
        return self.rows.own_logprob_share == 1

    @cached_property
    def by_num_samples(self) -> Sequence[AtSize]:
        """The prompts judged by each number of answers in `sizes`, and without answers if possible."""
        without = [0] if self.judges_without_answers else []
        return [self.first_answers(m) for m in (*without, *sizes(self.rows.material.num_samples))]

    @cached_property
    def recommendation(self) -> tuple[str, Candidate | None]:
        """The recommended number of answers as a sentence, and its candidate; see `recommended`."""
        return recommended(self.by_num_samples)

    def _judge(self, judged: Judged, num_samples: int) -> AtSize:
        """Return `judged` with its scores, by fits without each row's fold."""
        all_folds = self.fitted.fold
        held = [np.flatnonzero(all_folds == k) for k in range(int(all_folds.max()) + 1)]
        parts = [
            (correct_maps(judged.take(all_folds != k), num_samples, self.priors), judged.take(rows))
            for k, rows in enumerate(held)
        ]
        order = np.argsort(np.concatenate(held))
        fold = all_folds[judged.places]
        base = held_out_predictions({}, judged.right, (), fold)
        by_correct, why_none = list[Scored](), ""
        for name in parts[0][0]:
            features = [rows.columns(maps[name]) for maps, rows in parts]
            merged = {
                key: np.concatenate([np.asarray(part[key]) for part in features])[order]
                for key in features[0]
            }
            known = self.models.get(num_samples)
            outcome = fit_correctness(merged, judged.right, fold, groups=judged.groups, known=known)
            if outcome.why_none == "one_kind" and num_samples:
                kind = "right" if outcome.num_right else "wrong"
                why_none = f"all {judged.right.size} answers are {kind}"
            if outcome.held_out is not None:
                p = None if outcome.model is None else outcome.held_out
                by_correct.append(correctness_scored(name, p, base, judged.right))
        return AtSize(
            num_samples,
            judged.right,
            by_correct,
            log_losses(base, judged.right),
            why_none,
            self.rows.mean_tokens(num_samples),
            same_text=bool(num_samples) or self.rows.has_own_texts,
            groups=judged.groups,
        )


def correct_maps(rows: Judged, num_samples: int, priors: PriorSource = no_prior) -> dict[str, AnyMap | None]:
    """Return the maps of `CORRECT_BY`, fitted on the rows; "depolarized" needs two answers."""
    if rows.tokens:
        return {"evidence": None}
    can_fit = {"evidence": rows.rows.missing_mass is not None, "depolarized": num_samples > 1}
    return {
        method: fit(rows.rows, method, prior=priors(method, max(num_samples, 1))).map
        for method in CORRECT_BY
        if can_fit[method]
    }


def correctness_scored(name: str, predicted: Floats | None, base: Floats, right: Bools) -> Scored:
    """Return P(correct) of n texts with its losses; the base rate if no model predicts it."""
    p = base if predicted is None else predicted
    # Not `base`: the base rate without a fold is lower if the fold has more right answers, so ranking by it
    # gives an AUROC below 0.5.
    values = np.zeros_like(base) if predicted is None else predicted
    return Scored(name, log_losses(p, right), np.square(p - right), values)
