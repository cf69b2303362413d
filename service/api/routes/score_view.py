"""How a score becomes its answer and headers."""

from collections.abc import Collection
from typing import Any

from service.api.routes.score_response import (
    CalibrationUsed,
    CandidateOut,
    DecisionOut,
    EvidenceOut,
    ModeOut,
    ScoreResponse,
    SpectrumOut,
    SpectrumValues,
    TimingsOut,
    UsageOut,
    WarningOut,
)
from service.api.routes.score_schemas import ScorePart
from service.domain.scoring.evidence import Evidence
from service.domain.scoring.judgement import Decision, JudgedCandidate
from service.domain.scoring.model import Applied, Score
from service.spectral.maps import DepolarizedMap


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
        probability_correct=score.judgement.probability_correct,
        candidate=_candidate(score.judgement.candidate),
        decision=_decision(score.judgement.decision),
        lambda_max=score.served.lambda_max,
        entropy=score.served.entropy,
        entropy_normalized=score.served.entropy_normalized(len(score.samples)),
        calibrated=score.applied is not None,
        uncalibrated=SpectrumValues.model_construct(
            lambda_max=score.raw.lambda_max, entropy=score.raw.entropy
        ),
        calibration=_calibration(score.applied) if score.applied else None,
        ood_p_value=score.ood_p_value,
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


HEADERS: dict[str, Any] = {
    "X-Lambda-Max": {"description": "`lambda_max`.", "schema": {"type": "number"}},
    "X-Entropy": {"description": "`entropy`.", "schema": {"type": "number"}},
    "X-Calibration-ID": {
        "description": "Id of the calibration used; absent without one.",
        "schema": {"type": "string"},
    },
    "X-Candidate-Probability": {
        "description": "`candidate.probability`; absent without a candidate.",
        "schema": {"type": "number"},
    },
    "X-Probability-Correct": {
        "description": "`probability_correct` of the `candidate` or, without one, of `answer`; absent where "
        "null.",
        "schema": {"type": "number"},
    },
    "X-Decision": {
        "description": "`decision.action`: `answer`, let the text through, or `abstain`, hold it back. The "
        "text is the `candidate` or, without one, `answer`. Absent where `decision` is null.",
        "schema": {"type": "string", "enum": ["answer", "abstain"]},
    },
}


def headers_of(score: Score) -> dict[str, str]:
    """Return the score's headers, for proxies that drop bodies."""
    headers = {
        "X-Lambda-Max": f"{score.served.lambda_max:.6f}",
        "X-Entropy": f"{score.served.entropy:.6f}",
    }
    if score.applied:
        headers["X-Calibration-ID"] = score.applied.calibration.id
    if score.judgement.candidate is not None:
        headers["X-Candidate-Probability"] = f"{score.judgement.candidate.probability:.6f}"
    if score.judgement.decisive is not None:
        headers["X-Probability-Correct"] = f"{score.judgement.decisive:.6f}"
    if score.judgement.decision:
        headers["X-Decision"] = score.judgement.decision.action
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


def _candidate(found: JudgedCandidate | None) -> CandidateOut | None:
    if found is None:
        return None
    return CandidateOut.model_construct(
        probability=found.probability, mode=found.mode, probability_correct=found.probability_correct
    )


def _decision(made: Decision | None) -> DecisionOut | None:
    if made is None:
        return None
    return DecisionOut.model_construct(
        action=made.action,
        reason=made.reason,
        target_error=made.target.error,
        confidence=made.target.confidence,
        threshold=made.threshold,
        coverage=made.coverage,
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
