"""What the first m' answers of each prompt are worth, and how many to draw (decisions/0025).

Maps and P(correct) are fitted for each m' and judged. The first m', not random ones: they are what a request
for m' answers would have drawn, and cost. They judge one text of a prompt, however few they are: its
`answer`, or the dominant one of all answers (`FullRows`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration.calibration import NEEDED_OF_A_KIND, WITHOUT_EVIDENCE
from service.calibration.labels import Judged
from service.calibration.material import Material
from service.report.model import AnswersPart, AnswersRow, finite
from service.spectral.correctness import auroc, resampled_aurocs
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    fit_correctness,
    held_out_predictions,
    log_losses,
    stratified_folds,
)
from service.spectral.dev_set import risks, served_lambda_max
from service.spectral.evidence import EvidenceMap, EvidenceSet, fit_evidence
from service.spectral.fit import fit_depolarized, fit_temperature
from service.spectral.maps import CalibrationMap, Identity
from service.spectral.resampling import ResampleCounts, percentile_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
AnyMap = CalibrationMap | EvidenceMap
# Begins the same random numbers anew: each fit is judged on the same folds, whatever others there are.
Fresh = Callable[[], np.random.Generator]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map whose p(y) and entropy are features of P(correct), with the log-probabilities and without.
CORRECT_BY = ("evidence", "depolarized")


@dataclass(frozen=True, slots=True, eq=False)
class MapAt:
    """What a map serves with so many answers, (n,) each: risks in nats, lambda_max, and its gap to c_1."""

    risks: Floats
    lambda_max: Floats
    gaps: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by so many of their answers.

    right: (n,) verdicts on the text judged. served: by map, none but evidence for one answer. correct:
    P(correct) (n,) by `CORRECT_BY`, the base rate where no model beats it; base: (n,) the base rate of the
    verdicts fitted on. why_none: why there is no P(correct) at all, else "". tokens: completion tokens per
    question, None where a draw does not tell.
    """

    num_samples: int
    right: NDArray[np.bool_]
    served: Mapping[str, MapAt]
    correct: Mapping[str, Floats]
    base: Floats
    why_none: str
    tokens: float | None


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


def judge(
    dev: Judged, test: Judged, num_samples: int, tokens: float | None, eps: float, rng: Fresh
) -> AtSize:
    """Return what is fitted on `dev` with so many answers, as judged on `test`."""
    maps = _maps(dev, num_samples, eps)
    fits = {
        name: fit_correctness(_columns(dev, maps[name], name), dev.right, rng=rng())
        for name in CORRECT_BY
        if name in maps
    }
    base = np.full(len(test), dev.right.mean())
    correct = {
        name: one.model.predict(_columns(test, maps[name], name)) if one.model else base
        for name, one in fits.items()
        if one.candidates
    }
    served = {name: _served(map_, test) for name, map_ in maps.items()}
    why = _why_none(fits, "answers of the dev file")
    return AtSize(num_samples, test.right, served, correct, base, why, tokens)


def judge_held_out(
    rows: Judged,
    fold: Ints,
    num_samples: int,
    tokens: float | None,
    eps: float,
    rng: Fresh,
) -> AtSize:
    """Return the same for one set of rows, each judged by fits without its fold (n,)."""
    folds = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    parts = [(held, _maps(rows.take(fold != k), num_samples, eps)) for k, held in enumerate(folds)]
    order = np.argsort(np.concatenate(folds))
    names = list(parts[0][1])
    served = {
        name: _joined([_served(maps[name], rows.take(held)) for held, maps in parts], order) for name in names
    }
    columns = {
        name: _stacked([_columns(rows.take(held), maps[name], name) for held, maps in parts], order)
        for name in CORRECT_BY
        if name in names
    }
    fits = {name: fit_correctness(one, rows.right, rng=rng()) for name, one in columns.items()}
    base = _base_rates(rows.right, rng)
    correct = {
        name: base if one.model is None or one.held_out is None else one.held_out
        for name, one in fits.items()
        if one.candidates
    }
    return AtSize(num_samples, rows.right, served, correct, base, _why_none(fits, "answers"), tokens)


def _maps(rows: Judged, num_samples: int, eps: float) -> dict[str, AnyMap]:
    """Return every map fitted on the rows; one answer has a spectrum of 1, which only evidence can map."""
    maps: dict[str, AnyMap] = {}
    if num_samples > 1:
        maps["raw"] = Identity(eps)
        maps["temperature"] = fit_temperature(rows.rows, eps=eps).map
        maps["depolarized"] = fit_depolarized(rows.rows).map
    if rows.missing_mass is not None:
        maps["evidence"] = fit_evidence(EvidenceSet(rows.rows, rows.missing_mass)).map
    return maps


def _served(map_: AnyMap, rows: Judged) -> MapAt:
    over = rows.over(map_)
    largest = served_lambda_max(over, rows.rows)
    return MapAt(risks(over, rows.rows), largest, largest - np.clip(rows.rows.alignment[:, 0], 0.0, 1.0))


def _columns(rows: Judged, map_: AnyMap, name: str) -> Columns:
    columns = rows.columns(map_)
    # Without evidence means what a server without log-probabilities would leave.
    return columns if name == "evidence" else {k: v for k, v in columns.items() if k in WITHOUT_EVIDENCE}


def _joined(parts: list[MapAt], order: Ints) -> MapAt:
    columns = ([part.risks, part.lambda_max, part.gaps] for part in parts)
    return MapAt(*(np.concatenate(column)[order] for column in zip(*columns, strict=True)))


def _stacked(parts: list[Columns], order: Ints) -> dict[str, ArrayLike]:
    return {name: np.concatenate([np.asarray(one[name]) for one in parts])[order] for name in parts[0]}


def _base_rates(right: NDArray[np.bool_], rng: Fresh) -> Floats:
    """Return for each row (n,) the share right among the rows of the other folds."""
    fold = stratified_folds(right, 5, rng())
    return held_out_predictions({}, right, (), fold)


def _why_none(fits: Mapping[str, CorrectnessFit], what: str) -> str:
    """Return why there is no P(correct) with so many answers; "" where there is one, or nothing to fit."""
    for one in fits.values():
        if one.why_none == "one_kind":
            return f"all {one.num_right + one.num_wrong} {what} are {'right' if one.num_right else 'wrong'}"
        if one.why_none == "too_few_verdicts":
            kind, count = min(("right", one.num_right), ("wrong", one.num_wrong), key=lambda pair: pair[1])
            return f"only {count} of {one.num_right + one.num_wrong} {what} are {kind}"
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
        answers = "1 answer" if self.num_samples == 1 else f"{self.num_samples} answers"
        return f"{answers}, {'using' if self.map == 'evidence' else 'without'} log-probabilities"


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference in nats, paired by prompt, and its standard error."""

    value: float
    standard_error: float

    @property
    def within(self) -> bool:
        """Whether it is one standard error at most."""
        return self.value <= self.standard_error

    def __str__(self) -> str:
        return f"difference {self.value:+.4f}, standard error {self.standard_error:.4f}"


@dataclass(frozen=True, slots=True, eq=False)
class Recommendation:
    """A sentence, and what it names; None where nothing can be recommended. best: of the least mean loss."""

    sentence: str
    chosen: Candidate | None = None
    best: Candidate | None = None
    gap: Gap | None = None


def gap(losses: Floats, best: Floats) -> Gap:
    """Return the mean of losses - best (n,) with its standard error, of at least two prompts."""
    by_prompt = losses - best
    return Gap(float(by_prompt.mean()), float(by_prompt.std(ddof=1) / np.sqrt(by_prompt.size)))


def recommend(candidates: Sequence[Candidate], base: Floats | None = None) -> Recommendation:
    """Return the fewest answers whose mean loss is within one standard error of the least, paired by prompt.

    Losses: of P(correct). Among candidates with equally few answers, the one of the lower loss. base: losses
    (n,) of what needs no answers at all; where they are within one standard error, too, these prompts cannot
    tell numbers of answers apart, and nothing is recommended.
    """
    if len({one.num_samples for one in candidates}) < 2:
        return _nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda one: (one.loss, one.num_samples))
    if base is not None and (to_base := gap(base, best.losses)).within:
        return _nothing(
            f"the log loss of P(correct) of the best, {best.words} ({best.loss:.3f}), is within one standard "
            f"error of that of the mere share of right answers ({to_base})",
            best,
        )
    close = [one for one in candidates if gap(one.losses, best.losses).within]
    chosen = min(close, key=lambda one: (one.num_samples, one.loss))
    difference = gap(chosen.losses, best.losses)
    beside = "" if chosen is best else f"; best: {best.words}, {best.loss:.3f}, {difference}"
    full = max(candidates, key=lambda one: one.num_samples)
    sentence = (
        f"Recommended: {chosen.words} (log loss of P(correct) {chosen.loss:.3f}{beside}); "
        f"{_cost(chosen, full)}."
    )
    return Recommendation(sentence, chosen, best, difference)


def _nothing(reason: str, best: Candidate | None = None) -> Recommendation:
    return Recommendation(f"No number of answers can be recommended: {reason}.", best=best)


def _cost(chosen: Candidate, full: Candidate) -> str:
    if chosen.tokens is None or full.tokens is None:
        return "tokens per question are not known"
    if chosen.num_samples == full.num_samples:
        return f"{chosen.tokens:.0f} tokens per question"
    return f"{chosen.tokens:.0f} tokens per question instead of {full.tokens:.0f}"


def recommended(sizes: Sequence[AtSize]) -> Recommendation:
    """Return how many answers to ask for, by the log loss of P(correct); where there is none, why not.

    Never by risk, which falls with every answer (they span more of what a reference may be): that would name
    all of them, whatever they are worth.
    """
    if why := missing_verdicts(sizes):
        return _nothing(
            f"{why}. They are compared by P(correct), and for that a file should have at least "
            f"{NEEDED_OF_A_KIND} right answers and {NEEDED_OF_A_KIND} wrong ones"
        )
    candidates = [
        Candidate(at.num_samples, name, log_losses(p, at.right), at.tokens)
        for at in sizes
        for name, p in at.correct.items()
    ]
    return recommend(candidates, log_losses(sizes[-1].base, sizes[-1].right))


def missing_verdicts(sizes: Sequence[AtSize]) -> str:
    """Return which verdicts P(correct) lacks at some number of answers; "" for none."""
    return next((one.why_none for one in sizes if one.why_none), "")


def answers_part(sizes: Sequence[AtSize], resamples: ResampleCounts) -> AnswersPart:
    """Return a row per number of answers and score, and the fewest answers that are enough.

    Scores: lambda_max of every map (loss: matrix log risk; Brier: the projection's), and P(correct) with
    evidence and without (log loss and Brier of the verdicts). Each figure has its 95 % interval, and its gap
    to the same score with all answers, on the same resamples of the prompts: fits stay as they are.
    """
    advice = recommended(sizes)
    figures = [(at, {key: one.figures(resamples) for key, one in _scored(at)}) for at in sizes]
    _, full = figures[-1]
    rows = [
        _row(at, key, of_score, full[key] if at is not sizes[-1] and key in full else None)
        for at, by_score in figures
        for key, of_score in by_score.items()
    ]
    return {
        "recommendation": advice.sentence,
        "recommended": advice.chosen.num_samples if advice.chosen else None,
        "recommended_map": advice.chosen.map if advice.chosen else None,
        # Without P(correct) the risk is drawn, by which nothing is recommended.
        "recommended_by": "lambda_max" if missing_verdicts(sizes) else "probability_correct",
        "rows": rows,
    }


Score = tuple[Literal["probability_correct", "lambda_max"], str]  # and the map
Figures = Mapping[str, "_Figure"]


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """One score with so many answers: what its means are of, (n,) each, and how it orders the prompts."""

    losses: Floats
    squares: Floats
    values: Floats
    right: NDArray[np.bool_]

    def figures(self, resamples: ResampleCounts) -> Figures:
        ranking = auroc(self.values, self.right), resampled_aurocs(resamples, self.values, self.right)
        return {
            "loss": _Figure(float(self.losses.mean()), resamples.means(self.losses)),
            "brier": _Figure(float(self.squares.mean()), resamples.means(self.squares)),
            "auroc": _Figure(*ranking),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Figure:
    """A figure, and its value in each resample (B,)."""

    value: float
    drawn: Floats

    def __sub__(self, other: "_Figure") -> "_Figure":
        # On the same resamples: that is what pairs them.
        return _Figure(self.value - other.value, self.drawn - other.drawn)

    def columns(self, name: str) -> dict[str, float | None]:
        spread = percentile_interval(self.drawn)
        low, high = finite(spread.low), finite(spread.high)
        return {name: finite(self.value), f"{name}_low": low, f"{name}_high": high}


_UNKNOWN = _Figure(np.nan, np.empty(0))


def _scored(at: AtSize) -> Iterator[tuple[Score, _Scored]]:
    for name, p in at.correct.items():
        # Base rates of folds order by the lack of right answers in each: below 0.5, and nobody's score.
        values = np.zeros_like(p) if p is at.base else p
        losses = log_losses(p, at.right)
        yield ("probability_correct", name), _Scored(losses, np.square(p - at.right), values, at.right)
    for name, one in at.served.items():
        yield ("lambda_max", name), _Scored(one.risks, np.square(one.gaps), one.lambda_max, at.right)


def _row(at: AtSize, key: Score, figures: Figures, full: Figures | None) -> AnswersRow:
    row: dict[str, Any] = {"num_samples": at.num_samples, "score": key[0], "map": key[1], "tokens": at.tokens}
    for name, figure in figures.items():
        to_full = _UNKNOWN if full is None else figure - full[name]
        row |= figure.columns(name) | to_full.columns(f"{name}_gap")
    return cast("AnswersRow", row)
