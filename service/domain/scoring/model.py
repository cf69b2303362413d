"""What is asked of a score, and what it says."""

from dataclasses import dataclass, field

from service.domain.calibration import Calibration, Parameters
from service.domain.models import (
    GenerationRequest,
    Usage,
)
from service.spectral.maps import ServedSpectrum


@dataclass(frozen=True, slots=True)
class ScoreCommand:
    """What to score: a prompt for the LLM (`generation`), or `samples` that the caller has drawn.

    `calibration`: "active", "none", or the id of a stored one.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    arrived: float | None = None  # time.perf_counter() when the request came in


@dataclass(frozen=True, slots=True)
class ScoreWarning:
    """Something that the caller should know; `code` is stable."""

    code: str
    message: str
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mode:
    """One latent meaning: an eigenvector.

    `probability`: its served eigenvalue. `share`: share of the samples that lie closest to it. `answer`: the
    sample most aligned with it.
    """

    probability: float
    share: float
    answer: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The calibration that a score used, with the parameters of its number of answers."""

    calibration: Calibration
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Score:
    """The result. `served` is what to act on, `raw` the spectrum as it came; equal when not calibrated."""

    id: str
    answer: str
    served: ServedSpectrum
    raw: ServedSpectrum
    applied: Applied | None
    warnings: tuple[ScoreWarning, ...]
    model: str | None
    embedder: str
    samples: tuple[str, ...]
    num_distinct: int
    num_truncated: int
    num_empty: int
    modes: tuple[Mode, ...]
    usage: Usage | None
    timings_s: dict[str, float] = field(default_factory=dict)
