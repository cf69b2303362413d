"""The wire form of a calibration."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.domain.calibration import Calibration
from service.domain.jobs.model import CalibrationRecord

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
    "decides": [1, 2, 20],
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
    "num_rows": 300,
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
    decides: list[int] = Field(
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
    num_rows: int = Field(description="Rows it was fitted on.")
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


def calibration_view(record: CalibrationRecord) -> CalibrationOut:
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
        decides=sorted(calibration.deciders),
        eps=calibration.eps,
        fingerprint=calibration.fingerprint.shown(),
        fingerprint_key=calibration.fingerprint.key(),
        created_at=calibration.created_at,
        active=record.active,
        activated_at=record.activated_at,
        job_id=record.job_id,
        num_rows=record.num_rows,
        data_kept=record.data_kept,
        links=calibration_links(record),
    )
