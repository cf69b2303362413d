"""What gateways and routers are answered."""

from typing import Literal

from eigencal._models.result import Result


class Verified(Result):
    """Whether the answer will do."""

    confidence: float
    """Probability that the answer is right, 0..1, by the calibration; 0 for one that says what none of those
    drawn said."""
    samples: tuple[str, ...]
    """The answers, in the order drawn."""
    should_escalate: bool
    """Whether the confidence is below the threshold, or the question unlike those of the calibration (unless
    `EIGENCAL_OOD_ABSTAIN` is off)."""
    threshold: float
    """The threshold that was sent."""
    total_samples: int
    """How many answers were drawn."""
    verified_count: int
    """How many of the answers drawn lie on the mode of the answer: closest to the eigenvector of their
    density matrix that the answer belongs to, so that they mean the same. 0 where it belongs to none."""


class GuardrailVerdict(Result):
    """What the gateway is to do."""

    action: Literal["NONE", "BLOCKED"] | str
    """Go on, or do not."""
    blocked_reason: str | None = None
    """Of BLOCKED: why, for a person."""
