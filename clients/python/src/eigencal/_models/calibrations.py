"""Calibrations as the service lists them."""

from datetime import datetime
from typing import Any, Literal

from eigencal._models.result import Result


class Parameters(Result):
    """The parameters served with this number of answers."""

    depolarization: float
    """Depolarisation g, 0 for `temperature`."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class EvidenceParameters(Result):
    """The evidence map served with this number of answers: g = sigmoid(a + b logit u), u the missing mass."""

    evidence_intercept: float
    """Intercept a."""
    evidence_slope: float
    """Slope b, 0 or more; 0: the evidence says nothing."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class Promise(Result):
    """An error among the answers let through that is kept with this confidence."""

    confidence: float
    """Confidence with which it is kept."""
    coverage: float
    """Share of the questions that it lets through."""
    target_error: float
    """Share of wrong ones among the answers let through, at most."""
    threshold: float
    """The least P(correct) that is let through."""


class Activation(Result):
    """That a calibration came into force."""

    activated_at: datetime
    """When it came into force."""
    by: str
    """Who activated it: the job's id; `key_…` and its name; `settings key`; `no key` where none was needed;
    empty for those of before 0.3.0."""
    calibration_id: str
    """Id of the calibration."""
    fingerprint_key: str
    """The set-up: one calibration is in force for each."""
    reason: str
    """Why; empty for those of before 0.3.0."""
    replaced: str | None
    """The calibration that was in force until then."""


class Calibration(Result):
    """A calibration: immutable but for `active`, `activated_at` and `data_kept`."""

    activated_at: datetime | None
    """Since when."""
    active: bool
    """Whether requests of its fingerprint are served with it."""
    applies_now: bool
    """Whether it fits the set-up as it is now: the LLM, its sampling and the embedder; of a caller's own
    answers, the embedder."""
    created_at: datetime
    """When it was fitted."""
    data_kept: bool
    """Whether those rows are still there."""
    correctness_sample_counts: tuple[int, ...]
    """Numbers of answers for which it has P(correct) and thresholds; empty where the verdicts on its rows
    allow none. Its report says why."""
    depolarization: float
    """Depolarisation g there, 0 for `temperature`."""
    eps: float
    """Null eigenvalue with which `temperature` was fitted."""
    evidence: tuple[EvidenceParameters, ...] | None
    """For `evidence`, of every number of answers from 1 on; null for the others."""
    fingerprint: dict[str, Any]
    """What it is bound to, part by part."""
    fingerprint_key: str
    """Short hash of the fingerprint; one is active per key."""
    id: str
    """Id of the calibration."""
    job_id: str | None
    """The job that made it."""
    links: dict[str, str]
    """Paths: `self`, `report`, `activate`; `data` while its rows are kept."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """Its map."""
    name: str
    """The name given to it."""
    num_samples: int
    """The full number of answers: those drawn per prompt."""
    parameters: tuple[Parameters, ...]
    """For every number of answers from 2 on; for `evidence`, those of answers without log-probabilities."""
    projection_ece: float | None
    """Gap between lambda_max and what is found, on held-out rows; null where it was fitted by an earlier
    release."""
    promise: Promise | None
    """What a decision with all its answers promises: at the configured target error, or where that cannot be
    promised or none is set, at the lowest that can be; null where none can."""
    rows: int
    """Rows it was fitted on."""
    temperature: float
    """Matrix temperature T at the full number of answers; for `evidence`, without log-probabilities."""
