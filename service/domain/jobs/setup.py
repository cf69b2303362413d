"""What a job is bound to: the settings that it was posted under, and what its answers are drawn with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.errors import Conflict
from service.domain.jobs.model import CalibrateOptions
from service.domain.models import Fingerprint, shape_hash


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a service that decide what comes of a job, as JSON values by name.

    `embedding`: those that matter to every job. `drawing`: those that matter besides to a job whose answers
    the service draws, or vouches to have drawn. Services with equal set-ups may run each other's jobs.
    """

    embedding: Mapping[str, Any] = field(default_factory=dict)
    drawing: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, *, draws: bool) -> dict[str, Any]:
        """Return the settings that a job of this kind is bound to."""
        return {**self.embedding, **(self.drawing if draws else {}), "draws": draws}

    def keys(self) -> tuple[str, str]:
        """Return the keys of the jobs that this service runs: those that draw, then those that do not."""
        return setup_key(self.parts(draws=True)), setup_key(self.parts(draws=False))


def setup_key(parts: Mapping[str, Any]) -> str:
    """Return a stable hash (16 hex digits) of what `Setup.parts` returned."""
    return shape_hash(**parts)


def needs_llm(options: CalibrateOptions, *, missing: int) -> bool:
    """Tell whether a job asks the LLM: for `missing` rows without answers, or who it was that drew them."""
    return missing > 0 or options.drawn_by == "service"


def differing(posted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of the settings in which the two differ."""
    return sorted(k for k in posted.keys() | present.keys() if posted.get(k) != present.get(k))


def check_same(bound: Fingerprint, now: Fingerprint) -> None:
    """Raise Conflict when answers would come from another set-up than those already drawn."""
    differs = bound.differs(now)
    if "model" in differs:
        raise Conflict(
            "Answers of one calibration must all come from one model, but these come from two: first "
            f"{bound.model!r} answered, then {now.model!r}."
        )
    if differs:
        raise Conflict(
            "Answers of one calibration must all be drawn alike, but these parts differ between its rows, or "
            f"have changed since it began: {', '.join(differs)}."
        )
