"""A score that is found by its id, or goes with an answer of the drop-in."""

from typing import Literal

from eigencal._models.result import Result
from eigencal._models.score import (
    CalibrationUsed,
    Candidate,
    Decision,
    Evidence,
    Mode,
    ScoreWarning,
    Spectrum,
    SpectrumValues,
    Timings,
    Usage,
)


class KeptScore(Result):
    """A score as it was answered, and how far it is.

    Everything but `id` and `status` is None until the status is `scored`; fields as of `Score`. Beside an
    answer of the drop-in, `answer`, `modes` and `samples` stay None.
    """

    id: str
    """Id of this score."""
    status: Literal["pending", "scored", "not_scored", "failed"] | str
    """pending: ask again. scored: with everything that POST /score returned. not_scored, failed: `warning`
    says why."""
    warning: ScoreWarning | None = None
    """Why there is no score."""
    withheld: str | None = None
    """The model's own answer, where you asked for a decision to abstain to replace it."""
    answer: str | None = None
    """The sample most aligned with the dominant eigenvector."""
    lambda_max: float | None = None
    """Largest eigenvalue served, 0..1: the confidence. Higher = more certain. No probability."""
    entropy: float | None = None
    """Von Neumann entropy served, nats. Higher = less certain."""
    entropy_normalized: float | None = None
    """Entropy over the largest that the spectrum allows, 0..1."""
    calibrated: bool | None = None
    """Whether a calibration that fits was applied."""
    uncalibrated: SpectrumValues | None = None
    """The same two numbers without calibration."""
    calibration: CalibrationUsed | None = None
    """The calibration used; null: none."""
    ood_p_value: float | None = None
    """How like the calibration's rows the prompt is, 0..1; null where no calibration is applied."""
    evidence: Evidence | None = None
    """What the log-probabilities say; null unless every answer has one."""
    candidate: Candidate | None = None
    """The text judged by the answers: with the drop-in, the answer of the chat."""
    probability_correct: float | None = None
    """Probability, 0..1, that the answer is right; null where no calibration tells it."""
    decision: Decision | None = None
    """What to do with the answer, and why; null where no calibration can decide."""
    warnings: tuple[ScoreWarning, ...] = ()
    """What to know about this score."""
    model: str | None = None
    """Model that answered; null for supplied samples."""
    embedder: str | None = None
    """Embedder of the answers."""
    num_samples: int | None = None
    """Answers scored."""
    num_distinct: int | None = None
    """Distinct ones among them."""
    num_truncated: int | None = None
    """Answers cut by max_tokens; they count."""
    num_empty: int | None = None
    """Empty answers; together they are one outcome."""
    modes: tuple[Mode, ...] | None = None
    """The leading meanings, at most five."""
    samples: tuple[str, ...] | None = None
    """The answers, in the order drawn."""
    spectrum: Spectrum | None = None
    """The whole spectrum."""
    usage: Usage | None = None
    """Tokens used; null for supplied samples."""
    timings_ms: Timings | None = None
    """Where the time went."""
