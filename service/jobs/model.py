"""A job as its owner sees it, and the settings that it is bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from service.llm.port import shape_hash

JobKind = Literal["calibrate", "evaluate"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobStage = Literal["sampling", "embedding", "fitting", "reporting"]


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: a code of the error table and a sentence for the caller."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its owner sees it. `done` of `total` units of the stage; `eta_s` None while unknown.

    `note` says in words what a running job waits for, such as an LLM server that is down; else empty.
    `activated`: whether the calibration made became the active one, and `decision`, a sentence that says so,
    and why; None before, and of other jobs.
    `refused_rows`: that the LLM server refused for good, while it answered others.
    """

    id: str
    kind: JobKind
    state: JobState
    created_at: datetime
    name: str = ""
    stage: JobStage | None = None
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    note: str = ""
    error: JobError | None = None
    calibration_id: str | None = None
    activated: bool | None = None
    decision: str | None = None
    refused_rows: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def finished(self) -> bool:
        """Tell whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def links(self) -> dict[str, str]:
        """Return the paths of the job, and of what came of it."""
        path, made = f"/jobs/{self.id}", f"/calibrations/{self.calibration_id}"
        links = {"self": path, "events": f"{path}/events"}
        if self.state != "succeeded":
            return links
        if self.kind == "evaluate":
            return {**links, "report": f"/evaluations/{self.id}/report"}
        return {**links, "calibration": made, "report": f"{made}/report"}


@dataclass(frozen=True, slots=True)
class Correction:
    """A row of a calibration, by its line or its id, and what is right of the answer that was judged."""

    correct: bool
    line: int | None = None
    id: str | None = None


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


def differing(posted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of the settings in which the two differ."""
    return sorted(k for k in posted.keys() | present.keys() if posted.get(k) != present.get(k))
