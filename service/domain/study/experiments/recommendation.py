"""How many answers to ask for: the fewest within one standard error of the best (decisions/0025)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MEASURE = "log loss of P(correct)"


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
        how = {"evidence": " with evidence", "depolarized": " without evidence"}
        answers = "answer" if self.num_samples == 1 else "answers"
        return f"{self.num_samples} {answers}{how.get(self.map, f' by the {self.map} map')}"


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
        return nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda one: (one.loss, one.num_samples))
    if base is not None and (to_base := gap(base, best.losses)).within:
        return nothing(
            f"the {MEASURE} of the best, {best.words} ({best.loss:.3f}), is within one "
            f"standard error of what the mere share of right answers gives ({to_base})",
            best,
        )
    close = [one for one in candidates if gap(one.losses, best.losses).within]
    chosen = min(close, key=lambda one: (one.num_samples, one.loss))
    found = gap(chosen.losses, best.losses)
    return Recommendation(_sentence(candidates, chosen, best), chosen, best, found)


def nothing(reason: str, best: Candidate | None = None) -> Recommendation:
    """Return that no number of answers is recommended, and why: a clause without a full stop."""
    return Recommendation(f"No number of answers can be recommended: {reason}.", best=best)


def _sentence(candidates: Sequence[Candidate], chosen: Candidate, best: Candidate) -> str:
    one = chosen.num_samples == 1
    full = max(candidates, key=lambda one: (one.num_samples, -one.loss))
    if chosen.num_samples < best.num_samples:
        told = (
            f"{chosen.words} {'is' if one else 'are'} within one standard error of the best, {best.words}: "
            f"{MEASURE} {chosen.loss:.3f} against {best.loss:.3f} "
            f"({gap(chosen.losses, best.losses)})"
        )
    else:
        told = (
            f"{best.words} {'has' if one else 'have'} the lowest {MEASURE}, {best.loss:.3f}"
            f"{_no_fewer(candidates, best)}{_more(full, best)}"
        )
    return f"{told}{_tokens(chosen, full)}."


def _no_fewer(candidates: Sequence[Candidate], best: Candidate) -> str:
    fewer = [one for one in candidates if one.num_samples < best.num_samples]
    if not fewer:
        return ""
    closest = min(fewer, key=lambda one: one.loss)
    told = gap(closest.losses, best.losses)
    return f", and no fewer are within one standard error of it (nearest: {closest.words}, {told})"


def _more(full: Candidate, best: Candidate) -> str:
    if full.num_samples == best.num_samples:
        return ""
    return f"; {full.words}: {full.loss:.3f} ({gap(full.losses, best.losses)})"


def _tokens(chosen: Candidate, full: Candidate) -> str:
    if chosen.tokens is None or full.tokens is None:
        return "; tokens per question are not known"
    if chosen.num_samples == full.num_samples:
        return f"; {chosen.tokens:.0f} tokens per question"
    return f"; {chosen.tokens:.0f} tokens per question instead of {full.tokens:.0f}"
