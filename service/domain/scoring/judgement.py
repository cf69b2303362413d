"""What a score says of single texts: how likely they are, whether right, and whether to let one through."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a decision.

    `error`: the share of wrong ones allowed among the answers let through, in (0, 1). `confidence`: with
    which probability it is kept, in (0, 1). `by_default`: nobody named one, so there is a decision only
    where a calibration can make it.
    """

    error: float
    confidence: float
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A text that the caller has, judged by the answers drawn.

    `probability`: p(y) under the served matrix, in [0, lambda_max]; higher = more likely meant. `mode`: the
    eigenvector that it belongs to, 0 the largest; None: it says what no answer said. `probability_correct`:
    in [0, 1]; None where no model tells, or `mode` is None. `share`: of the answers drawn, how many of 1 lie
    closest to that eigenvector; 0 without one.
    """

    probability: float
    mode: int | None
    probability_correct: float | None
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to let a text through.

    `reason`: why, and so what to do with the text, in a sentence.
    `threshold`: the least P(correct) that is let through; None where the target cannot be promised.
    `coverage`: the share of questions, of those that set the threshold, that it lets through, in [0, 1].
    """

    action: Literal["answer", "abstain"]
    target: Target
    reason: str
    threshold: float | None = None
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a score says of the candidate, and of its own `answer`.

    `probability_correct`: of the answer, in [0, 1]; None where no model tells. `unlike`: the prompt is too
    unlike the calibration's rows for anything to be let through.
    """

    candidate: JudgedCandidate | None = None
    probability_correct: float | None = None
    decision: Decision | None = None
    unlike: bool = False

    @property
    def supported(self) -> bool:
        """Whether an answer drawn supports the text that a decision is about: its own `answer` always."""
        return self.candidate is None or self.candidate.mode is not None

    @property
    def decisive(self) -> float | None:
        """P(correct) of the text that a decision is about: the candidate where there is one."""
        return self.probability_correct if self.candidate is None else self.candidate.probability_correct
