"""What an answer more is worth: every map, and P(correct), by number of answers; and how many to ask for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.fitting import Stream
from service.domain.decider import NEEDED_OF_A_KIND
from service.domain.study.bench import Bench
from service.domain.study.by_answers import AtSize, sizes
from service.domain.study.experiments.recommendation import Candidate, Recommendation, nothing, recommend
from service.domain.study.model import Experiment, TableRow, finite, ran
from service.spectral.correctness import auroc
from service.spectral.logistic import log_losses
from service.spectral.resamples import Resamples, interval

Floats = NDArray[np.float64]
NAME, TITLE = "answers", "What an answer more is worth"
FIGURES = ("loss", "brier", "auroc")
CORRECT, SERVED = "probability_correct", "lambda_max"
NEEDED = (
    f"They are compared by P(correct), and for that a file should have at least {NEEDED_OF_A_KIND} right "
    f"answers and {NEEDED_OF_A_KIND} wrong ones"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """One score with so many answers: what its means are of, (n,) each, and how it orders the prompts."""

    score: str
    map: str
    losses: Floats
    squares: Floats
    values: Floats
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Figure:
    """A figure, and its value in each resample (B,)."""

    value: float
    drawn: Floats

    def __sub__(self, other: "_Figure") -> "_Figure":
        # On the same resamples: that is what pairs them.
        return _Figure(self.value - other.value, self.drawn - other.drawn)


_UNKNOWN = _Figure(np.nan, np.empty(0))


def answers(bench: Bench) -> Experiment:
    """Return a row per number of answers and score, and the fewest answers that are enough.

    Scores: lambda_max of every map (loss: matrix log risk; Brier: the projection's), and P(correct) with
    evidence and without (log loss and Brier of the verdicts). Each figure has its 95 % interval, and its gap
    to the same score with all m answers, on the same resamples of the prompts: fits stay as they are.
    """
    found = [bench.first_answers(m) for m in sizes(bench.test.material.num_samples)]
    resamples = Resamples.of(len(bench.test), bench.rng(Stream.ANSWERS))
    full = {(one.score, one.map): _figures(one, resamples) for one in _scored(found[-1])}
    points = [
        _named(at, one)
        | _columns(_figures(one, resamples), full.get((one.score, one.map)) if at is not found[-1] else None)
        for at in found
        for one in _scored(at)
    ]
    return ran(NAME, TITLE, _headline(found), points)


def _named(at: AtSize, one: _Scored) -> TableRow:
    return {"num_samples": at.num_samples, "score": one.score, "map": one.map, "tokens": at.tokens}


def _scored(at: AtSize) -> Iterator[_Scored]:
    for name, p in at.correct.items():
        # Base rates of folds order by the lack of right answers in each: below 0.5, and nobody's score.
        values = np.zeros_like(p) if p is at.base else p
        yield _Scored(CORRECT, name, log_losses(p, at.right), np.square(p - at.right), values, at.right)
    for name, one in at.served.items():
        yield _Scored(SERVED, name, one.risks, np.square(one.gaps), one.lambda_max, at.right)


def _figures(one: _Scored, resamples: Resamples) -> dict[str, _Figure]:
    losses, squares = one.losses, one.squares
    return {
        "loss": _Figure(float(losses.mean()), resamples.means(losses)),
        "brier": _Figure(float(squares.mean()), resamples.means(squares)),
        "auroc": _Figure(auroc(one.values, one.right), resamples.aurocs(one.values, one.right)),
    }


def _columns(found: Mapping[str, _Figure], full: Mapping[str, _Figure] | None) -> TableRow:
    row: TableRow = {}
    for name in FIGURES:
        gap = _UNKNOWN if full is None else found[name] - full[name]
        row |= _with_interval(name, found[name]) | _with_interval(f"{name}_gap", gap)
    return row


def _with_interval(name: str, found: _Figure) -> TableRow:
    low, high = interval(found.drawn)
    return {name: finite(found.value), f"{name}_low": finite(low), f"{name}_high": finite(high)}


def _headline(found: Sequence[AtSize]) -> TableRow:
    told = recommended(found)
    chosen, best, gap = told.chosen, told.best, told.gap
    return {
        "recommended": chosen.num_samples if chosen else None,
        "recommended_map": chosen.map if chosen else None,
        # Without P(correct) the risk is drawn, by which nothing is recommended.
        "recommended_by": SERVED if _lacking(found) else CORRECT,
        "recommended_loss": chosen.loss if chosen else None,
        "best": best.num_samples if best else None,
        "best_map": best.map if best else None,
        "best_loss": best.loss if best else None,
        "difference": gap.value if gap else None,
        "standard_error": gap.standard_error if gap else None,
        "tokens": chosen.tokens if chosen else None,
        "tokens_of_all": found[-1].tokens,
        "recommendation": told.sentence,
    }


def _lacking(found: Sequence[AtSize]) -> str:
    """Return which verdicts P(correct) lacks at some number of answers; "" for none."""
    return next((one.why_none for one in found if one.why_none), "")


def recommended(found: Sequence[AtSize]) -> Recommendation:
    """Return how many answers to ask for, by the log loss of P(correct); where there is none, why not.

    Never by risk, which falls with every answer (they span more of what a reference may be): that would name
    all of them, whatever they are worth.
    """
    if why := _lacking(found):
        return nothing(f"{why}. {NEEDED}")
    candidates = [
        Candidate(at.num_samples, name, log_losses(p, at.right), at.tokens)
        for at in found
        for name, p in at.correct.items()
    ]
    return recommend(candidates, log_losses(found[-1].base, found[-1].right))
