"""What is sent to make a job: dev data, options, corrections."""

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from service.api.bodies import RequestModel
from service.calibration.calibration import ActivateOption, MethodOption
from service.calibration.rows import MAX_ID_CHARS, MIN_USABLE_ROWS, ExampleIn
from service.scoring.command import MAX_ITEMS

MAX_CORRECTIONS = 10_000
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
        "out: that of the settings (30), 0: the rows alone.",
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


class Correction(RequestModel):
    """A row by its `line` or its `id`, and whether the answer that was judged is right."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"type": "object", "required": [name]} for name in ("line", "id")]}
    )

    line: int | None = Field(None, ge=1, description="Line of the row in the file.")
    id: str | None = Field(None, max_length=MAX_ID_CHARS, description="Or its id.")
    correct: bool = Field(description="Whether the answer that was judged is right.")

    @model_validator(mode="after")
    def named_one_way(self) -> Self:
        """Refuse both of `line` and `id`, and neither."""
        if (self.line is None) == (self.id is None):
            raise ValueError("send `line` or `id`")
        return self


class CorrectionsRequest(RequestModel):
    """Corrected verdicts, and options of the calibration that is fitted with them."""

    rows: list[Correction] = Field(min_length=1, max_length=MAX_CORRECTIONS, description="What is corrected.")
    activate: ActivateOption | None = Field(
        None,
        description="When to serve it. Left out: at once where the calibration corrected is the active one, "
        "else never.",
    )
    method: MethodOption | None = Field(
        None, description="Map to serve; left out: as for the calibration corrected."
    )
    name: str | None = Field(None, max_length=200, description="A name for people; left out: the same.")
