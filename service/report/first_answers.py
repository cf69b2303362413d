"""What the first m' answers of each prompt are worth, and how many to draw (decisions/0025).

Maps and P(correct) are fitted for each m' and judged. The first m', not random ones: they are what a request
for m' answers would have drawn, and cost. They judge one text of a prompt, however few they are: its
`answer`, or the dominant one of all answers (`FullRows`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import WITHOUT_EVIDENCE
from service.calibration.fitting import METHODS
from service.calibration.labels import Judged, JudgedAlone
from service.calibration.material import Material
from service.report.model import AnswersPart, AnswersRow, Estimate, estimate
from service.spectral.correctness import auroc, half_error, resampled_aurocs, resampled_half_errors
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    ModelPriorSource,
    base_rate,
    fit_correctness,
    held_out_predictions,
    log_losses,
    stratified_folds,
)
from service.spectral.dev_set import risks, served_lambda_max
from service.spectral.evidence import EvidenceMap, EvidenceSet, fit_evidence
from service.spectral.fit import PriorSource, fit, no_prior
from service.spectral.maps import CalibrationMap, Identity
from service.spectral.resampling import ResampleCounts, percentile_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Bools = NDArray[np.bool_]
AnyMap = CalibrationMap | EvidenceMap
# Begins the same random numbers anew: each fit is judged on the same folds, whatever others there are.
Fresh = Callable[[], np.random.Generator]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map whose p(y) and entropy are features of P(correct), with the log-probabilities and without.
CORRECT_BY = ("evidence", "depolarized")
MAP_ALONE = "evidence"  # where no answer is drawn, log-probabilities are all that is known


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One score of a map with so many answers, (n,) each: losses in nats, squared errors, and its values."""

    score: Literal["probability_correct", "lambda_max"]
    map: str
    losses: Floats
    squares: Floats
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by so many of their answers.

    right: (n,) verdicts on the text judged. served: lambda_max of each map, evidence alone for one answer.
    correct: P(correct) (n,) by `CORRECT_BY`, the base rate where no model beats it; base: (n,) the base rate
    of the verdicts fitted on. why_none: why there is no P(correct) at all, else "". tokens: completion tokens
    per question, None where a draw does not tell. same_text: whether the text judged is the one that other
    numbers of answers judge: losses of different texts do not compare. groups: as `Material.full_groups`.
    """

    num_samples: int
    right: Bools
    served: Sequence[Scored]
    correct: Mapping[str, Floats]
    base: Floats
    why_none: str
    tokens: float | None
    same_text: bool = True
    groups: Ints | None = None


def sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers that are compared, up to m, which is always the last.

    >>> sizes(12)
    [1, 2, 3, 5, 8, 10, 12]
    """
    return [*(m for m in SIZES if m < num_samples), num_samples]


def mean_tokens(material: Material, num_samples: int) -> float | None:
    """Return the mean number of tokens of the first answers of a full row; None where one is not known."""
    drawn = [draw.num_tokens for i in material.full for draw in material.rows[int(i)].draws[:num_samples]]
    known = [count for count in drawn if count is not None]
    return sum(known) / material.full.size if len(known) == len(drawn) else None


def judge(dev: Judged, test: Judged, num_samples: int, tokens: float | None, rng: Fresh) -> AtSize:
    """Return what is fitted on `dev` with so many answers, as judged on `test`."""
    maps = _maps(dev, num_samples, no_prior)
    if test.missing_mass is None:
        maps.pop("evidence", None)
    served = [_scored(name, map_, test) for name, map_ in maps.items()]
    by = {name: maps[name] for name in CORRECT_BY if name in maps}
    pairs = {name: (_columns(dev, map_, name), _columns(test, map_, name)) for name, map_ in by.items()}
    return AtSize(num_samples, test.right, served, *_correct_on(pairs, dev.right, len(test), rng), tokens)


def judge_alone(dev: JudgedAlone, test: JudgedAlone, rng: Fresh) -> AtSize:
    """Return what the log-probabilities of the judged texts are worth by themselves: no answer is drawn."""
    correct, base, _ = _correct_on({MAP_ALONE: (dev.columns, test.columns)}, dev.right, len(test), rng)
    return AtSize(0, test.right, [], correct, base, "", 0.0, same_text=test.judged == "given")


def judge_alone_held_out(rows: JudgedAlone, rng: Fresh, model_priors: ModelPriorSource) -> AtSize:
    """Return the same for one set of rows, each judged by a fit without its fold."""
    correct, base, _ = _correct_held_out(
        {MAP_ALONE: rows.columns}, rows.right, 0, rng, model_priors, rows.groups
    )
    same_text = rows.judged == "given"
    return AtSize(0, rows.right, [], correct, base, "", 0.0, same_text=same_text, groups=rows.groups)


def judge_held_out(
    rows: Judged,
    fold: Ints,
    num_samples: int,
    tokens: float | None,
    rng: Fresh,
    priors: PriorSource,
    model_priors: ModelPriorSource,
) -> AtSize:
    """Return the same for one set of rows, each judged by fits without its fold (n,)."""
    folds = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    order = np.argsort(np.concatenate(folds))
    parts = [
        (rows.take(held), _maps(rows.take(fold != k), num_samples, priors)) for k, held in enumerate(folds)
    ]
    served, columns = [], {}
    for name in parts[0][1]:
        by_fold = [_scored(name, maps[name], held) for held, maps in parts]
        figures = zip(*((one.losses, one.squares, one.values) for one in by_fold), strict=True)
        served.append(Scored("lambda_max", name, *(np.concatenate(figure)[order] for figure in figures)))
    for name in (name for name in CORRECT_BY if name in parts[0][1]):
        features = [_columns(held, maps[name], name) for held, maps in parts]
        columns[name] = {
            key: np.concatenate([np.asarray(x[key]) for x in features])[order] for key in features[0]
        }
    correct = _correct_held_out(columns, rows.right, num_samples, rng, model_priors, rows.groups)
    return AtSize(num_samples, rows.right, served, *correct, tokens, groups=rows.groups)


def _correct_on(
    columns: Mapping[str, tuple[Columns, Columns]], right: Bools, size: int, rng: Fresh
) -> tuple[dict[str, Floats], Floats, str]:
    """Return `correct`, `base` and `why_none` of `size` prompts; columns: of those fitted on, and of theirs.

    right: verdicts of those fitted on.
    """
    fold, base = stratified_folds(right, 5, rng()), np.full(size, base_rate(right))
    fits = {name: fit_correctness(dev, right, fold) for name, (dev, _) in columns.items()}
    correct = {
        name: one.model.predict(columns[name][1]) if one.model else base
        for name, one in fits.items()
        if one.held_out is not None
    }
    return correct, base, _why_none(fits, "answers of the dev file")


def _correct_held_out(
    columns: Mapping[str, Columns],
    right: Bools,
    num_samples: int,
    rng: Fresh,
    priors: ModelPriorSource,
    groups: Ints | None = None,
) -> tuple[dict[str, Floats], Floats, str]:
    """Return the same of the prompts that the models are fitted on, each by one without its fold."""
    fold = stratified_folds(right, 5, rng(), groups)
    base = held_out_predictions({}, right, (), fold)
    fits = {
        name: fit_correctness(one, right, fold, prior=priors(name, num_samples, one), groups=groups)
        for name, one in columns.items()
    }
    known = {name: base if one.model is None else one.held_out for name, one in fits.items()}
    correct = {name: p for name, p in known.items() if p is not None and fits[name].held_out is not None}
    return correct, base, _why_none(fits, "answers")


def _maps(rows: Judged, num_samples: int, priors: PriorSource) -> dict[str, AnyMap]:
    """Return every map fitted on the rows; one answer has a spectrum of 1, which only evidence can map."""
    maps: dict[str, AnyMap] = {}
    if num_samples > 1:
        maps["raw"] = Identity()
        for method in METHODS:
            maps[method] = fit(rows.rows, method, prior=priors(method, num_samples)).map
    if rows.missing_mass is not None:
        prior = priors("evidence", num_samples)
        maps["evidence"] = fit_evidence(EvidenceSet(rows.rows, rows.missing_mass), prior).map
    return maps


def _scored(name: str, map_: AnyMap, rows: Judged) -> Scored:
    over = rows.over(map_)
    largest = served_lambda_max(over, rows.rows)
    gaps = largest - np.clip(rows.rows.alignment[:, 0], 0.0, 1.0)
    return Scored("lambda_max", name, risks(over, rows.rows), np.square(gaps), largest)


def _columns(rows: Judged, map_: AnyMap, name: str) -> Columns:
    columns = rows.columns(map_)
    # Without evidence means what a server without log-probabilities would leave.
    return columns if name == "evidence" else {k: v for k, v in columns.items() if k in WITHOUT_EVIDENCE}


def _why_none(fits: Mapping[str, CorrectnessFit], what: str) -> str:
    """Return why there is no P(correct) with so many answers; "" where there is one, or nothing to fit."""
    for one in fits.values():
        if one.why_none == "one_kind":
            return f"all {one.num_right + one.num_wrong} {what} are {'right' if one.num_right else 'wrong'}"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way to serve: losses (n,) in nats by prompt with so many answers, and what they cost.

    map: "evidence" uses log-probabilities, others do not. tokens: per question, None where not known.
    """

    num_samples: int
    map: str
    losses: Floats
    tokens: float | None = None

    @property
    def loss(self) -> float:
        """The mean loss in nats; lower = better."""
        return float(self.losses.mean())

    @property
    def words(self) -> str:
        """Number and map in words."""
        if not self.num_samples:
            return "0 answers, using the log-probability of the answer itself"
        answers = "1 answer" if self.num_samples == 1 else f"{self.num_samples} answers"
        return f"{answers}, {'using' if self.map == 'evidence' else 'without'} log-probabilities"


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference in nats, paired by prompt, and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def between(cls, losses: Floats, best: Floats) -> "Gap":
        """Return the mean of losses - best (n,) with its standard error, of at least two prompts."""
        by_prompt = losses - best
        return cls(float(by_prompt.mean()), float(by_prompt.std(ddof=1) / np.sqrt(by_prompt.size)))

    @property
    def within(self) -> bool:
        """Whether it is one standard error at most."""
        return self.value <= self.standard_error

    def __str__(self) -> str:
        return f"difference {self.value:+.4f}, standard error {self.standard_error:.4f}"


def recommend(candidates: Sequence[Candidate], base: Floats | None = None) -> tuple[str, Candidate | None]:
    """Return the fewest answers whose mean loss is within one standard error of the least, paired by prompt.

    As a sentence, and the candidate that it names; None where nothing can be recommended. Losses: of
    P(correct). Among candidates with equally few answers, the one of the lower loss. base: losses (n,) of
    what needs no answers at all; where they are within one standard error, too, these prompts cannot tell
    numbers of answers apart.
    """
    if len({one.num_samples for one in candidates}) < 2:
        return _nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda one: (one.loss, one.num_samples))
    if base is not None and (to_base := Gap.between(base, best.losses)).within:
        return _nothing(
            f"the log loss of P(correct) of the best, {best.words} ({best.loss:.3f}), is within one standard "
            f"error of that of the mere share of right answers ({to_base})"
        )
    close = [one for one in candidates if Gap.between(one.losses, best.losses).within]
    chosen = min(close, key=lambda one: (one.num_samples, one.loss))
    gap = Gap.between(chosen.losses, best.losses)
    beside = "" if chosen is best else f"; best: {best.words}, {best.loss:.3f}, {gap}"
    full = max(candidates, key=lambda one: one.num_samples)
    cost = f"{chosen.tokens:.0f} tokens per question" if chosen.tokens is not None else "tokens are not known"
    if chosen.tokens is not None and full.tokens is not None and chosen.num_samples != full.num_samples:
        cost += f" instead of {full.tokens:.0f}"
    loss = f"log loss of P(correct) {chosen.loss:.3f}{beside}"
    return f"Recommended: {chosen.words} ({loss}); {cost}.", chosen


def _nothing(reason: str) -> tuple[str, None]:
    return f"No number of answers can be recommended: {reason}.", None


def recommended(sizes: Sequence[AtSize]) -> tuple[str, Candidate | None]:
    """Return how many answers to ask for, by the log loss of P(correct); where there is none, why not.

    Never by risk, which falls with every answer (they span more of what a reference may be): that would name
    all of them, whatever they are worth.
    """
    if why := next((one.why_none for one in sizes if one.why_none), ""):
        return _nothing(f"{why}. They are compared by P(correct), which takes right ones and wrong ones")
    candidates = [
        Candidate(at.num_samples, name, _losses(at, p), at.tokens)
        for at in sizes
        for name, p in at.correct.items()
        if at.same_text
    ]
    return recommend(candidates, _losses(sizes[-1], sizes[-1].base))


def _losses(at: AtSize, predicted: Floats) -> Floats:
    """Return the log loss of each prompt (n,) in nats, or the mean of each group (G,)."""
    losses = log_losses(predicted, at.right)
    if at.groups is None:
        return losses
    of_row = np.unique(at.groups, return_inverse=True)[1]
    return np.asarray(np.bincount(of_row, weights=losses) / np.bincount(of_row))


def answers_part(sizes: Sequence[AtSize], resamples: ResampleCounts) -> AnswersPart:
    """Return a row per number of answers and score, and the fewest answers that are enough.

    Scores: lambda_max of every map (loss: matrix log risk; Brier: the projection's), and P(correct) with
    evidence and without (log loss and Brier of the verdicts). Each figure has its 95 % interval, and the loss
    its gap to that with all answers, on the same resamples of the prompts: fits stay as they are.
    """
    sentence, chosen = recommended(sizes)
    full = {(one.score, one.map): one.losses for one in _every_score(sizes[-1])}
    return {
        "recommendation": sentence,
        "recommended": chosen.num_samples if chosen else None,
        "recommended_map": chosen.map if chosen else None,
        "rows": [
            _row(at, one, full.get((one.score, one.map)) if compares else None, resamples)
            for at, compares in ((at, at is not sizes[-1] and at.same_text) for at in sizes)
            for one in _every_score(at)
        ],
    }


def _every_score(at: AtSize) -> Iterator[Scored]:
    for name, p in at.correct.items():
        # Base rates of folds order by the lack of right answers in each: below 0.5, and nobody's score.
        values = np.zeros_like(p) if p is at.base else p
        yield Scored("probability_correct", name, log_losses(p, at.right), np.square(p - at.right), values)
    yield from at.served


def _row(at: AtSize, one: Scored, full: Floats | None, resamples: ResampleCounts) -> AnswersRow:
    def mean(values: Floats) -> Estimate:
        spread = percentile_interval(resamples.means(values))
        return estimate(float(values.mean()), spread.low, spread.high)

    ranking = percentile_interval(resampled_aurocs(resamples, one.values, at.right))
    halves = percentile_interval(resampled_half_errors(resamples, one.values, at.right))
    return {
        "num_samples": at.num_samples,
        "score": one.score,
        "map": one.map,
        "tokens": at.tokens,
        "loss": mean(one.losses),
        "loss_gap": None if full is None else mean(one.losses - full),
        "brier": mean(one.squares),
        "auroc": estimate(auroc(one.values, at.right), ranking.low, ranking.high),
        "half_error": estimate(half_error(one.values, at.right), halves.low, halves.high),
    }
