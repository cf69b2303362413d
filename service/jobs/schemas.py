"""The wire forms of jobs: dev data and options in, the job out."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.api.bodies import RequestModel
from service.calibration.calibration import ActivateOption, MethodOption
from service.calibration.rows import MIN_USABLE_ROWS, ExampleIn
from service.jobs.model import JobKind, JobStage, JobState
from service.scoring.command import MAX_ITEMS

JOB: dict[str, Any] = {
    "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
    "kind": "calibrate",
    "state": "running",
    "name": "TriviaQA, November",
    "stage": "sampling",
    "done": 120,
    "total": 300,
    "eta_s": 412.0,
    "note": "",
    "error": None,
    "calibration_id": None,
    "activated": None,
    "decision": None,
    "refused_rows": 0,
    "created_at": "2026-11-21T07:00:00Z",
    "started_at": "2026-11-21T07:00:01Z",
    "finished_at": None,
    "links": {
        "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
        "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
    },
}


class OptionsIn(RequestModel):
    """How to calibrate. All are optional."""

    method: MethodOption = Field(
        "auto",
        description="Map to serve. `auto`: the one of lowest cross-validated risk, `evidence` among them "
        "where every answer has a log-probability; `both`: the better of the other two.",
    )
    num_samples: int | None = Field(
        None, ge=2, le=MAX_ITEMS, description="Answers per prompt; left out: as many as a score draws."
    )
    activate: ActivateOption = Field(
        "if_better", description="When to serve it: `if_better` than the active one on the same rows."
    )
    name: str = Field("", max_length=200, description="A name for people.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of folds, subsets and bootstrap.")
    prior_weight: float | None = Field(
        None,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="Labelled rows that the default calibration counts for, to which fits are drawn; left "
        "out: 30, 0: the rows alone.",
    )
    drawn_by: Literal["caller", "service"] = Field(
        "caller",
        description="Who drew the `samples` of the rows; `service`: you vouch that this LLM set-up did.",
    )
    source_label: str = Field(
        "", max_length=200, description="Names the caller's own set-up; scores of that label fit."
    )

    @model_validator(mode="after")
    def label_is_the_callers(self) -> Self:
        """Refuse a label for the service's own answers."""
        if self.source_label and self.drawn_by == "service":
            raise ValueError("`source_label` goes with `drawn_by` = `caller`")
        return self


class CalibrateRequest(OptionsIn):
    """Dev data and options as JSON."""

    examples: list[ExampleIn] = Field(min_length=MIN_USABLE_ROWS, description="Labelled rows.")


class CalibrateForm(OptionsIn):
    """Dev data as a file, options as form fields."""

    file: bytes = Field(
        description="JSONL, JSONL.gz or CSV in UTF-8, rows as `examples` of the JSON form.",
        json_schema_extra={"format": "binary"},
    )


class EvaluateOptionsIn(RequestModel):
    """How to evaluate. All are optional."""

    num_samples: int | None = Field(
        None, ge=2, le=MAX_ITEMS, description="Answers per prompt; left out: as many as a score draws."
    )
    name: str = Field("", max_length=200, description="A name for people.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of folds, draws and bootstrap.")


class EvaluateRequest(EvaluateOptionsIn):
    """Two sets of rows and options as JSON."""

    dev: list[ExampleIn] = Field(min_length=MIN_USABLE_ROWS, description="Labelled rows to fit on.")
    test: list[ExampleIn] = Field(min_length=MIN_USABLE_ROWS, description="Labelled rows to test on.")


class EvaluateForm(EvaluateOptionsIn):
    """Two sets of rows as files, options as form fields."""

    dev: bytes = Field(
        description="Rows to fit on: JSONL, JSONL.gz or CSV in UTF-8, as for /calibrate.",
        json_schema_extra={"format": "binary"},
    )
    test: bytes = Field(description="Rows to test on.", json_schema_extra={"format": "binary"})


class JobErrorOut(BaseModel):
    """Why a job failed."""

    model_config = ConfigDict(from_attributes=True)

    code: str = Field(description="A code of the error table.")
    detail: str = Field(description="The same for a person.")


class JobOut(BaseModel):
    """A job."""

    model_config = ConfigDict(from_attributes=True)

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
    error: JobErrorOut | None = Field(description="Why it failed.")
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
