"""A score as it is answered."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.api.routes.score_schemas import ScorePart
from service.domain.scoring.evidence import Evidence
from service.domain.scoring.model import Applied, Score
from service.spectral.maps import DepolarizedMap


class SpectrumValues(BaseModel):
    """The two numbers of a spectrum."""

    lambda_max: float = Field(description="Largest eigenvalue, 0..1. Higher = more certain.")
    entropy: float = Field(description="Von Neumann entropy in nats. Higher = less certain.")


class CalibrationUsed(BaseModel):
    """The calibration that the score used, with the parameters for its number of answers."""

    id: str = Field(description="Id of the calibration.")
    method: Literal["depolarized", "temperature", "evidence"] = Field(description="The map applied.")
    temperature: float = Field(description="Matrix temperature T applied.")
    depolarization: float = Field(
        description="Depolarisation g applied, 0 for `temperature`; with `evidence`, that of this very score."
    )
    evidence_intercept: float | None = Field(
        None, description="With `evidence`: a of g = sigmoid(a + b logit u), u the missing mass."
    )
    evidence_slope: float | None = Field(None, description="With `evidence`: b.")
    created_at: datetime = Field(description="When it was fitted.")


class EvidenceOut(BaseModel):
    """What the log-probabilities of the answers say."""

    missing_mass: float = Field(
        description="Mass that the LLM gives to none of the answers, 0..1. Higher = less certain."
    )
    mean_logprob: float = Field(
        description="Mean log-probability of the whole answers, nats. Higher = more certain."
    )


class WarningOut(BaseModel):
    """Something the caller should know."""

    code: str = Field(
        description="calibration_missing, calibration_mismatch, evidence_missing, partial_samples, "
        "truncated_samples or indistinct_answers."
    )
    message: str = Field(description="The same for a person.")
    differs: list[str] | None = Field(None, description="For a mismatch: the parts that differ.")


class ModeOut(BaseModel):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    probability: float = Field(description="Its served eigenvalue, 0..1.")
    share: float = Field(description="Share of the samples that lie closest to it, 0..1.")
    answer: str = Field(description="The sample most aligned with it.")


class SpectrumOut(BaseModel):
    """The whole spectrum."""

    eigenvalues: list[float] = Field(description="Served eigenvalues, descending.")
    null_value: float = Field(description="Served eigenvalue of each remaining direction.")
    null_count: int = Field(description="Number of remaining directions.")
    uncalibrated: list[float] = Field(description="Eigenvalues as they came, descending, sum 1.")


class UsageOut(BaseModel):
    """Tokens, as the LLM server counts them."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of all answers.")


class TimingsOut(BaseModel):
    """Milliseconds by stage."""

    queue: float = Field(description="Waiting: for parsing and for a slot at the LLM.")
    generate: float | None = Field(None, description="Drawing the answers; null for supplied samples.")
    embed: float = Field(description="Embedding the distinct answers.")
    spectrum: float = Field(description="Spectrum, calibration and modes.")
    total: float = Field(description="All of it.")


class ScoreResponse(BaseModel):
    """A scored prompt."""

    id: str = Field(description="Id of this score.")
    answer: str = Field(description="The sample most aligned with the dominant eigenvector.")
    lambda_max: float = Field(
        description="Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much "
        "of their meaning the answers share, not the probability that the answer is right."
    )
    entropy: float = Field(description="Von Neumann entropy served, nats. Higher = less certain.")
    entropy_normalized: float = Field(description="Entropy over the largest that the spectrum allows, 0..1.")
    calibrated: bool = Field(description="Whether a calibration that fits was applied.")
    uncalibrated: SpectrumValues = Field(description="The same two numbers without calibration.")
    calibration: CalibrationUsed | None = Field(description="The calibration used; null: none.")
    evidence: EvidenceOut | None = Field(
        description="What the log-probabilities say; null unless every answer has one."
    )
    warnings: list[WarningOut] = Field(description="What to know about this score.")
    model: str | None = Field(description="Model that answered; null for supplied samples.")
    embedder: str = Field(description="Embedder of the answers.")
    num_samples: int = Field(description="Answers scored.")
    num_distinct: int = Field(description="Distinct ones among them.")
    num_truncated: int = Field(description="Answers cut by max_tokens; they count.")
    num_empty: int = Field(description="Empty answers; together they are one outcome.")
    modes: list[ModeOut] | None = Field(None, description="The leading meanings, at most five.")
    samples: list[str] | None = Field(None, description="The answers, in the order drawn.")
    spectrum: SpectrumOut | None = Field(None, description="The whole spectrum.")
    usage: UsageOut | None = Field(description="Tokens used; null for supplied samples.")
    timings_ms: TimingsOut = Field(description="Where the time went.")


def view(score: Score, parts: Collection[ScorePart]) -> ScoreResponse:
    """Return the wire form with the further parts asked for; parts not asked for are left unset."""
    # Any: the plugin that types model_construct does not follow unpacked dictionaries.
    optional: dict[str, Any] = {}
    if "modes" in parts:
        optional["modes"] = [
            ModeOut.model_construct(probability=mode.probability, share=mode.share, answer=mode.answer)
            for mode in score.modes
        ]
    if "samples" in parts:
        optional["samples"] = list(score.samples)
    if "spectrum" in parts:
        optional["spectrum"] = _spectrum(score)
    # model_construct: the values are ours, checking them again would cost more than computing them did.
    return ScoreResponse.model_construct(
        id=score.id,
        answer=score.answer,
        lambda_max=score.served.lambda_max,
        entropy=score.served.entropy,
        entropy_normalized=score.served.entropy_normalized(len(score.samples)),
        calibrated=score.applied is not None,
        uncalibrated=SpectrumValues.model_construct(
            lambda_max=score.raw.lambda_max, entropy=score.raw.entropy
        ),
        calibration=_calibration(score.applied) if score.applied else None,
        evidence=_evidence(score.evidence),
        warnings=[
            WarningOut.model_construct(code=w.code, message=w.message, **_differs(w.differs))
            for w in score.warnings
        ],
        model=score.model,
        embedder=score.embedder,
        num_samples=len(score.samples),
        num_distinct=score.num_distinct,
        num_truncated=score.num_truncated,
        num_empty=score.num_empty,
        usage=_usage(score),
        timings_ms=TimingsOut.model_construct(**_milliseconds(score)),
        **optional,
    )


def headers_of(score: Score) -> dict[str, str]:
    """Return the score's headers, for proxies that drop bodies."""
    headers = {
        "X-Lambda-Max": f"{score.served.lambda_max:.6f}",
        "X-Entropy": f"{score.served.entropy:.6f}",
    }
    if score.applied:
        headers["X-Calibration-ID"] = score.applied.calibration.id
    return headers


def _differs(parts: tuple[str, ...]) -> dict[str, Any]:
    return {"differs": list(parts)} if parts else {}


def _milliseconds(score: Score) -> dict[str, Any]:
    return {stage: round(seconds * 1000, 3) for stage, seconds in score.timings_s.items()}


def _calibration(applied: Applied) -> CalibrationUsed:
    # Any: the plugin that types model_construct does not follow unpacked dictionaries.
    by_evidence: dict[str, Any] = {}
    if applied.evidence is not None:
        by_evidence = {
            "evidence_intercept": applied.evidence.intercept,
            "evidence_slope": applied.evidence.slope,
        }
    return CalibrationUsed.model_construct(
        id=applied.calibration.id,
        method=applied.method,
        temperature=applied.map.temperature,
        depolarization=applied.map.depolarization if isinstance(applied.map, DepolarizedMap) else 0.0,
        created_at=applied.calibration.created_at,
        **by_evidence,
    )


def _evidence(found: Evidence | None) -> EvidenceOut | None:
    if found is None:
        return None
    return EvidenceOut.model_construct(
        missing_mass=found.missing_mass, mean_logprob=found.mean_log_probability
    )


def _usage(score: Score) -> UsageOut | None:
    if score.usage is None:
        return None
    return UsageOut.model_construct(
        prompt_tokens=score.usage.prompt_tokens, completion_tokens=score.usage.completion_tokens
    )


def _spectrum(score: Score) -> SpectrumOut:
    return SpectrumOut.model_construct(
        eigenvalues=score.served.eigenvalues.tolist(),
        null_value=score.served.null_value,
        null_count=score.served.null_count,
        uncalibrated=score.raw.eigenvalues.tolist(),
    )
