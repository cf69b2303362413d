"""A job as its owner sees it, and the settings that it is bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.llm.port import shape_hash

JobKind = Literal["calibrate", "evaluate"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobStage = Literal["sampling", "embedding", "fitting", "reporting"]


class JobError(BaseModel):
    """Why a job failed."""

    model_config = ConfigDict(frozen=True)

    code: str = Field(description="A code of the error table.")
    detail: str = Field(description="The same for a person.")


class Job(BaseModel):
    """A job."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Id of the job.")
    kind: JobKind = Field(description="What it does.")
    state: JobState = Field(
        description="Where it stands; the last three are final, but that a failed job can be retried."
    )
    name: str = Field(description="The name given to it.")
    stage: JobStage | None = Field(description="What a running job is at.")
    done: int = Field(description="Units of the stage that are done.")
    total: int = Field(description="Units of the stage in all.")
    eta_s: float | None = Field(description="Seconds that the stage will still take; null: not known.")
    note: str = Field(description="What an open job waits for, if it does.")
    error: JobError | None = Field(description="Why it failed.")
    calibration_id: str | None = Field(description="The calibration that it made.")
    activated: bool | None = Field(
        description="Whether that one became the active one of its set-up; null before, and of an evaluation."
    )
    decision: str | None = Field(description="The same as a sentence that says why.")
    refused_rows: int = Field(
        description="Rows that the LLM server refused while it answered others, once the job has ended; "
        "retry it to ask for them again."
    )
    created_at: datetime = Field(description="When it was posted.")
    started_at: datetime | None = Field(description="When it first ran.")
    finished_at: datetime | None = Field(description="When it ended.")
    links: dict[str, str] = Field(
        description="Paths: `self`, `events`; once it has succeeded `report` and, if any, `calibration`."
    )

    @property
    def finished(self) -> bool:
        """Tell whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")


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
