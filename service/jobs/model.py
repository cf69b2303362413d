"""A job: the requests that create one, its public form, and the settings that it is bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.calibration.calibration import ActivateOption, MethodOption, Unit
from service.calibration.rows import MAX_ID_CHARS, MIN_USABLE_ROWS, ExampleIn
from service.claims.comparison import Compare
from service.http.bodies import RequestModel
from service.llm.prompt import shape_hash
from service.scoring.score import MAX_ITEMS

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobStage = Literal["sampling", "embedding", "comparing", "checking", "fitting", "reporting"]
MAX_CORRECTIONS = 10_000


MAX_NAME = 200  # characters


class CalibrateOptions(RequestModel):
    """Options of a calibration. All are optional."""

    num_samples: int | None = Field(
        None, ge=2, le=MAX_ITEMS, description="Answers per prompt. Left out: the number that a score draws."
    )
    name: str = Field(
        "", max_length=MAX_NAME, description="Name for display. Left out: the name of an uploaded file."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of folds and resamples.")
    method: MethodOption = Field(
        "auto",
        description="Map to serve. `auto`: the map with the lowest cross-validated risk, including "
        "`evidence` if every answer has a log-probability. `both`: the better of the two other maps.",
    )
    activate: ActivateOption = Field(
        "if_better",
        description="When to activate the calibration. `if_better`: if it is better than the active one "
        "on the same rows.",
    )
    unit: Unit = Field(
        "answer",
        description="Unit of the calibrated scores: `answer` for whole answers, `claim` for single claims "
        "of long answers, by the `claims` of the rows.",
    )
    compare: Compare | None = Field(
        None,
        description="How answers are compared, as in `POST /score`. A calibration applies to one way only. "
        "Left out: the service's setting. Claims are never compared by the LLM.",
    )
    self_check: bool | None = Field(
        None,
        description="Whether P(correct) uses the LLM's self-checks of the judged texts, as in `POST /score`. "
        "Left out: the service's setting.",
    )
    drawn_by: Literal["caller", "service"] = Field(
        "caller",
        description="Source of the rows' `samples`. `service`: you confirm that this LLM set-up drew them.",
    )
    source_label: str = Field(
        "",
        max_length=200,
        description="Name of the caller's own set-up. The calibration applies to scores with the same label.",
    )

    @model_validator(mode="after")
    def label_is_the_callers(self) -> Self:
        """Refuse a source label for the service's own answers."""
        if self.source_label and self.drawn_by == "service":
            raise ValueError("`source_label` needs `drawn_by` = `caller`")
        return self

    @model_validator(mode="after")
    def claims_have_no_evidence(self) -> Self:
        """Refuse the evidence map for claims: it needs log-probabilities of whole answers."""
        if self.unit == "claim" and self.method == "evidence":
            raise ValueError("`method` = `evidence` applies to whole answers only; use `auto` for claims")
        return self


class JobOptions(CalibrateOptions):
    """The options of a job.

    corrects: id of the calibration with the same rows before their verdicts were corrected, "" for other
    jobs. bundled: the rows are the bundled questions.
    """

    corrects: str = ""
    bundled: bool = False


class CalibrateRequest(CalibrateOptions):
    """Dev data and options as JSON."""

    examples: list[ExampleIn] = Field(min_length=MIN_USABLE_ROWS, description="Labelled rows.")


class CalibrateForm(CalibrateOptions):
    """Dev data as a file, options as form fields."""

    file: bytes = Field(
        description="JSONL or CSV in UTF-8. Rows have the same fields as `examples` in JSON.",
        json_schema_extra={"format": "binary"},
    )


class Correction(RequestModel):
    """A row by its `line` or its `id`, and the verdict on its judged answer."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"type": "object", "required": [name]} for name in ("line", "id")]}
    )

    line: int | None = Field(None, ge=1, description="Line of the row in the file.")
    id: str | None = Field(None, max_length=MAX_ID_CHARS, description="Id of the row, instead of `line`.")
    correct: bool = Field(description="Whether the judged answer is right.")

    @model_validator(mode="after")
    def named_one_way(self) -> Self:
        """Require exactly one of `line` and `id`."""
        if (self.line is None) == (self.id is None):
            raise ValueError("send `line` or `id`")
        return self


class CorrectionsRequest(RequestModel):
    """Corrected verdicts, and options of the calibration that is fitted with them."""

    rows: list[Correction] = Field(
        min_length=1, max_length=MAX_CORRECTIONS, description="Corrected verdicts by row."
    )
    activate: ActivateOption | None = Field(
        None,
        description="When to activate the new calibration. Left out: at once if the corrected calibration "
        "is active, otherwise never.",
    )
    method: MethodOption | None = Field(
        None, description="Map to serve. Left out: the map of the corrected calibration."
    )
    name: str | None = Field(None, max_length=200, description="Name for display. Left out: the same name.")


class JobError(BaseModel):
    """The reason for a job's failure."""

    model_config = ConfigDict(frozen=True)

    code: str = Field(description="Code from the error table.")
    detail: str = Field(description="Explanation in plain English.")


class Job(BaseModel):
    """A job."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Id of the job.")
    kind: Literal["calibrate"] = Field(description="Kind of the job.")
    state: JobState = Field(
        description="State of the job. The last three are final, except that a failed job can be retried."
    )
    name: str = Field(description="Name of the job.")
    stage: JobStage | None = Field(description="Current stage of a running job.")
    done: int = Field(description="Number of completed units of the stage.")
    total: int = Field(description="Total number of units of the stage.")
    eta_s: float | None = Field(description="Estimated remaining seconds of the stage. Null: unknown.")
    note: str = Field(description="Reason why an open job waits. Empty if it does not.")
    error: JobError | None = Field(description="Reason for the failure. Null without a failure.")
    calibration_id: str | None = Field(description="Id of the calibration that the job made.")
    activated: bool | None = Field(
        description="Whether the calibration became the active one of its set-up. Null before that is "
        "decided."
    )
    decision: str | None = Field(
        description="Verdict on the use of the calibration (the first words of its report), and the reason "
        "why it was activated or not."
    )
    refused_rows: int = Field(
        description="Number of rows that the LLM server refused while it answered others. Known once the "
        "job has ended. Retry the job to ask for them again."
    )
    created_at: datetime = Field(description="Time of the request.")
    started_at: datetime | None = Field(description="Time of the first run.")
    finished_at: datetime | None = Field(description="Time of the end.")
    links: dict[str, str] = Field(description="Paths: `self`. After success also `report` and `calibration`.")


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a service that affect the results of jobs, as JSON values by name.

    `embedding`: settings that affect every job. `drawing`: settings that also affect a job with answers drawn
    by the service, or claimed to be. Services with equal set-ups may run each other's jobs.
    """

    embedding: Mapping[str, Any] = field(default_factory=dict)
    drawing: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, *, draws: bool) -> dict[str, Any]:
        """Return the settings that a job is bound to. draws: True if the job asks the LLM."""
        return {**self.embedding, **(self.drawing if draws else {}), "draws": draws}

    def keys(self) -> tuple[str, str]:
        """Return the keys of the jobs that this service runs: those that draw, then those that do not."""
        return shape_hash(**self.parts(draws=True)), shape_hash(**self.parts(draws=False))


def differing(posted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of the settings that differ."""
    return sorted(k for k in posted.keys() | present.keys() if posted.get(k) != present.get(k))
