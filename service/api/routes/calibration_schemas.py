"""The wire form of a calibration."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.api.http.bodies import RequestModel
from service.domain.calibration import Calibration
from service.domain.devdata.row import MAX_ID_CHARS
from service.domain.jobs.model import CalibrationRecord
from service.domain.scoring.deciding import lowest_named, promise
from service.domain.scoring.judgement import Target

MAX_CORRECTIONS = 10_000
# No rows promise so little: what is promised instead is the lowest that can be.
LOWEST = 1e-9
ACTIVATION: dict[str, Any] = {
    "calibration_id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
    "activated_at": "2026-11-21T07:08:00Z",
    "by": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
    "reason": "Activated: none was active for this set-up, and on held-out prompts it is better than raw.",
    "replaced": None,
    "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
}

CALIBRATION: dict[str, Any] = {
    "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
    "name": "TriviaQA, November",
    "method": "evidence",
    "temperature": 0.92,
    "depolarization": 0.56,
    "num_samples": 20,
    "parameters": [
        {"num_samples": 2, "temperature": 0.55, "depolarization": 0.7},
        {"num_samples": 20, "temperature": 0.92, "depolarization": 0.56},
    ],
    "evidence": [
        {"num_samples": 1, "temperature": 1.0, "evidence_intercept": -0.09, "evidence_slope": 0.35},
        {"num_samples": 20, "temperature": 0.92, "evidence_intercept": -0.62, "evidence_slope": 0.41},
    ],
    "correctness_sample_counts": [1, 2, 20],
    "eps": 1e-10,
    "fingerprint": {
        "source": "service",
        "embedder": "all-mpnet-base-v2",
        "embedder_revision": "78c0197b6159d926",
        "embedder_precision": "float32",
        "embedder_dimension": 768,
        "source_label": "",
        "model": "SmolLM2-135M-Instruct",
        "api": "completions",
        "prompt_shape": "5f0a3c1d9be24786",
        "answer_regex": "",
        "sampling.temperature": 0.5,
        "sampling.top_p": 1.0,
        "sampling.top_k": 0,
        "sampling.max_tokens": 64,
        "sampling.stop": ["\n"],
        "evidence": "token_sums",
    },
    "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
    "created_at": "2026-11-21T07:08:00Z",
    "active": True,
    "activated_at": "2026-11-21T07:08:00Z",
    "job_id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
    "rows": 300,
    "projection_ece": 0.043,
    "promise": {"target_error": 0.1, "confidence": 0.9, "threshold": 0.71, "coverage": 0.42},
    "applies_now": True,
    "data_kept": True,
    "links": {
        "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
        "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
        "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
        "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
    },
}
ROW = '{"id": "0", "prompt": "Who wrote Emma?", "reference": "Jane Austen", "samples": ["Austen", "Eliot"]}\n'


class ParametersOut(BaseModel):
    """The parameters served with this number of answers."""

    num_samples: int = Field(description="Number of answers.")
    temperature: float = Field(description="Matrix temperature T.")
    depolarization: float = Field(description="Depolarisation g, 0 for `temperature`.")


class EvidenceParametersOut(BaseModel):
    """The evidence map served with this number of answers: g = sigmoid(a + b logit u), u the missing mass."""

    num_samples: int = Field(description="Number of answers.")
    temperature: float = Field(description="Matrix temperature T.")
    evidence_intercept: float = Field(description="Intercept a.")
    evidence_slope: float = Field(description="Slope b, 0 or more; 0: the evidence says nothing.")


class PromiseOut(BaseModel):
    """An error among the answers let through that is kept with this confidence."""

    target_error: float = Field(description="Share of wrong ones among the answers let through, at most.")
    confidence: float = Field(description="Confidence with which it is kept.")
    threshold: float = Field(description="The least P(correct) that is let through.")
    coverage: float = Field(description="Share of the questions that it lets through.")


class ActivationOut(BaseModel):
    """That a calibration came into force."""

    model_config = ConfigDict(from_attributes=True)

    calibration_id: str = Field(description="Id of the calibration.")
    activated_at: datetime = Field(description="When it came into force.")
    by: str = Field(
        description="Who activated it: the job's id; `key_…` and its name; `settings key`; `no key` where "
        "none was needed; empty for those of before 0.3.0."
    )
    reason: str = Field(description="Why; empty for those of before 0.3.0.")
    replaced: str | None = Field(description="The calibration that was in force until then.")
    fingerprint_key: str = Field(description="The set-up: one calibration is in force for each.")


class CorrectionIn(RequestModel):
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

    rows: list[CorrectionIn] = Field(
        min_length=1, max_length=MAX_CORRECTIONS, description="What is corrected."
    )
    activate: Literal["if_better", "always", "never"] | None = Field(
        None,
        description="When to serve it. Left out: at once where the calibration corrected is the active one, "
        "else never.",
    )
    method: Literal["depolarized", "temperature", "evidence", "both", "auto"] | None = Field(
        None, description="Map to serve; left out: as for the calibration corrected."
    )
    name: str | None = Field(None, max_length=200, description="A name for people; left out: the same.")

    @model_validator(mode="after")
    def one_verdict_each(self) -> Self:
        """Refuse two verdicts that differ on one row."""
        said: dict[int | str | None, bool] = {}
        for one in self.rows:
            key = one.id if one.line is None else one.line
            if said.setdefault(key, one.correct) != one.correct:
                raise ValueError(f"two verdicts on {'id' if one.line is None else 'line'} {key!r}")
        return self


class CalibrationOut(BaseModel):
    """A calibration: immutable but for `active`, `activated_at` and `data_kept`."""

    id: str = Field(description="Id of the calibration.")
    name: str = Field(description="The name given to it.")
    method: Literal["depolarized", "temperature", "evidence"] = Field(description="Its map.")
    temperature: float = Field(
        description="Matrix temperature T at the full number of answers; for `evidence`, without "
        "log-probabilities."
    )
    depolarization: float = Field(description="Depolarisation g there, 0 for `temperature`.")
    num_samples: int = Field(description="The full number of answers: those drawn per prompt.")
    parameters: list[ParametersOut] = Field(
        description="For every number of answers from 2 on; for `evidence`, those of answers without "
        "log-probabilities."
    )
    evidence: list[EvidenceParametersOut] | None = Field(
        description="For `evidence`, of every number of answers from 1 on; null for the others."
    )
    correctness_sample_counts: list[int] = Field(
        description="Numbers of answers for which it has P(correct) and thresholds; empty where the verdicts "
        "on its rows allow none. Its report says why."
    )
    eps: float = Field(description="Null eigenvalue with which `temperature` was fitted.")
    fingerprint: dict[str, Any] = Field(description="What it is bound to, part by part.")
    fingerprint_key: str = Field(description="Short hash of the fingerprint; one is active per key.")
    created_at: datetime = Field(description="When it was fitted.")
    active: bool = Field(description="Whether requests of its fingerprint are served with it.")
    activated_at: datetime | None = Field(description="Since when.")
    job_id: str | None = Field(description="The job that made it.")
    rows: int = Field(description="Rows it was fitted on.")
    projection_ece: float | None = Field(
        description="Gap between lambda_max and what is found, on held-out rows; null where it was fitted by "
        "an earlier release."
    )
    promise: PromiseOut | None = Field(
        description="What a decision with all its answers promises: at the configured target error, or where "
        "that cannot be promised or none is set, at the lowest that can be; null where none can."
    )
    applies_now: bool = Field(
        description="Whether it fits the set-up as it is now: the LLM, its sampling and the embedder; of a "
        "caller's own answers, the embedder."
    )
    data_kept: bool = Field(description="Whether those rows are still there.")
    links: dict[str, str] = Field(
        description="Paths: `self`, `report`, `activate`; `data` while its rows are kept."
    )


def calibration_links(record: CalibrationRecord) -> dict[str, str]:
    """Return the paths of a calibration."""
    path = f"/calibrations/{record.calibration.id}"
    links = {"self": path, "report": f"{path}/report", "activate": f"{path}/activate"}
    return {**links, "data": f"{path}/data"} if record.data_kept else links


def state_now(record: CalibrationRecord) -> dict[str, Any]:
    """Return whether a calibration is active, as its report says it (`report_model.Now`)."""
    since = record.activated_at
    return {"active": record.active, "activated_at": since.isoformat() if since else None}


def _evidence(calibration: Calibration) -> list[EvidenceParametersOut] | None:
    return [
        EvidenceParametersOut(
            num_samples=m,
            temperature=found.temperature,
            evidence_intercept=found.intercept,
            evidence_slope=found.slope,
        )
        for m, found in sorted(calibration.evidence.items())
    ] or None


def promise_of(calibration: Calibration, target: Target) -> PromiseOut | None:
    """Return what it promises at this target, or at the lowest that it can keep."""
    decider = calibration.deciders.get(calibration.num_samples)
    if decider is None:
        return None
    found = promise(decider.counts, target)
    if found.threshold is None and (lowest := lowest_named(decider.counts, found)) is not None:
        found = promise(decider.counts, Target(lowest, target.confidence))
    if found.threshold is None:
        return None
    return PromiseOut(
        target_error=found.target_error,
        confidence=found.confidence,
        threshold=found.threshold,
        coverage=found.coverage,
    )


def calibration_view(record: CalibrationRecord, *, target: Target, applies_now: bool) -> CalibrationOut:
    """Return a calibration as it is sent."""
    calibration = record.calibration
    parameters = [
        ParametersOut(num_samples=m, temperature=p.temperature, depolarization=p.depolarization)
        for m, p in sorted(calibration.parameters.items())
    ]
    headline = calibration.headline()
    return CalibrationOut(
        id=calibration.id,
        name=calibration.name,
        method=calibration.method,
        temperature=headline.temperature,
        depolarization=headline.depolarization,
        num_samples=calibration.num_samples,
        parameters=parameters,
        evidence=_evidence(calibration),
        correctness_sample_counts=sorted(calibration.deciders),
        eps=calibration.eps,
        fingerprint=calibration.fingerprint.shown(),
        fingerprint_key=calibration.fingerprint.key(),
        created_at=calibration.created_at,
        active=record.active,
        activated_at=record.activated_at,
        job_id=record.job_id,
        rows=record.num_rows,
        projection_ece=record.projection_ece,
        promise=promise_of(calibration, target),
        applies_now=applies_now,
        data_kept=record.data_kept,
        links=calibration_links(record),
    )
