"""What is sent to be scored."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from service.api.bodies import RequestModel
from service.calibration.rows import LogProbability
from service.llm.port import GenerationRequest, Message, Sampling, question_text
from service.scoring.score import Applied, Decision, Evidence, JudgedCandidate, Score, ScoreCommand
from service.scoring.serving import Effort, Serving
from service.spectral.maps import DepolarizedMap

ScorePart = Literal["samples", "modes", "spectrum"]
PromptText = Annotated[str, Field(max_length=1_000_000)]
Answer = Annotated[str, Field(max_length=200_000)]
MAX_ITEMS = 256


class MessageIn(RequestModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: PromptText = Field(min_length=1, description="What is said.")


class SamplingIn(RequestModel):
    """How the LLM draws answers; what is left out comes from the settings."""

    temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature; 0 makes all answers equal."
    )
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling: probability mass kept.")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="Most likely tokens kept; 0: all.")
    max_tokens: int | None = Field(None, ge=1, le=32768, description="Most tokens of an answer.")
    stop: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        None, max_length=16, description="Strings that end an answer."
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Seed passed to the LLM; left out: none. Some servers cannot take one.",
    )


# What the validator below enforces, said in JSON Schema too. Every part names its type: Swagger UI takes a
# `not` without one for "not anything", and shows the whole as "never".
_DRAWING = ("num_samples", "effort", "sampling", "model", "deadline_ms")


def _with(*names: str) -> dict[str, Any]:
    return {"title": f"with {' and '.join(names)}", "type": "object", "required": list(names)}


_EITHER: dict[str, Any] = {
    "anyOf": [_with("prompt"), _with("messages"), _with("samples")],
    "not": _with("prompt", "messages"),
    "dependentSchemas": {
        "samples": {"type": "object", "not": {"type": "object", "anyOf": [_with(name) for name in _DRAWING]}},
        "logprobs": _with("samples"),
        "source_label": _with("samples"),
        "effort": {"type": "object", "not": _with("num_samples")},
    },
}


class ScoreRequest(RequestModel):
    """What to score: `prompt` or `messages`, or `samples` already drawn (then `prompt` is optional)."""

    model_config = ConfigDict(json_schema_extra=_EITHER)
    misnamed: ClassVar[Mapping[str, str]] = {"logprob": "logprobs"}

    prompt: PromptText | None = Field(
        None, pattern=r"\S", description="A question; the service puts its prompt format around it."
    )
    messages: list[MessageIn] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="A conversation, sent to the LLM as it is. The last turn is not the assistant's.",
    )
    samples: list[Answer] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ITEMS,
        description="Answers already drawn; the LLM is not called. Empty ones are left out, unless the "
        "settings say what they mean. One is enough with its log-probability where a calibration by evidence "
        "fits, else two.",
    )
    logprobs: list[LogProbability] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ITEMS,
        description="The natural-log probability of each whole sample, the token that ended it included: as "
        "many as `samples`. Where a sample is only a part of what was drawn, leave this out. (Rows of "
        "`POST /calibrate` may call it `logprob`, too; here it has this one name.)",
    )
    source_label: str | None = Field(
        None, max_length=200, description="Who drew `samples`: a calibration fits only its own label."
    )
    num_samples: int | None = Field(
        None,
        ge=1,
        le=MAX_ITEMS,
        description="Answers to draw. One is enough where a calibration by evidence fits, else two.",
    )
    effort: Effort | None = Field(
        None,
        description="How many answers to draw, in place of `num_samples`: `low`, `medium` and `high` stand "
        "for 3, 8 and 20 of them, unless the settings of the service say otherwise. More cost more tokens.",
    )
    candidate: Answer | None = Field(
        None,
        description="A text to judge by the answers, such as the one about to be sent. It never counts as "
        "one of them. A blank one is refused, unless the settings say what empty answers mean.",
    )
    target_error: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of wrong ones allowed among the answers let through, for `decision`. Left out: "
        "that of the settings, else 0.2 where a calibration can decide.",
    )
    confidence: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Confidence with which the target is kept; left out: that of the settings (0.9).",
    )
    sampling: SamplingIn | None = Field(None, description="How to draw them.")
    model: str | None = Field(
        None, min_length=1, max_length=256, description="Model to ask the LLM server for."
    )
    calibration: str = Field(
        "active",
        pattern=r"^(active|none|cal_[0-9A-Z]{26})$",
        description="`active`, `none` (raw values), or the id of a calibration.",
    )
    return_: list[ScorePart] = Field(
        ["modes"], alias="return", max_length=16, description="Further parts of the answer: what to return."
    )
    deadline_ms: int | None = Field(
        None,
        ge=1,
        le=3_600_000,
        description="Time for the answers to come; what has come by then is scored (two at least, one by "
        "evidence).",
    )

    @field_validator("messages")
    @classmethod
    def left_to_answer(cls, turns: list[MessageIn] | None) -> list[MessageIn] | None:
        """Refuse a conversation that the assistant has answered: what is drawn then is up to the server."""
        if turns and turns[-1].role == "assistant":
            raise ValueError("the last turn is the assistant's; send what it said as `candidate` instead")
        return turns

    @model_validator(mode="after")
    def one_source(self) -> Self:
        """Refuse no source of answers, or two."""
        if self.prompt is not None and self.messages is not None:
            raise ValueError("send `prompt` or `messages`, not both")
        if self.effort is not None and self.num_samples is not None:
            raise ValueError("send `num_samples` or `effort`, not both")
        if self.prompt is None and self.messages is None and self.samples is None:
            raise ValueError("send `prompt`, `messages` or `samples`")
        if self.samples is not None:
            self._refuse_drawing()
        elif self.source_label is not None:
            raise ValueError("`source_label` goes with `samples`")
        return self

    @model_validator(mode="after")
    def a_log_probability_per_sample(self) -> Self:
        """Refuse log-probabilities without samples, or another number of them."""
        if self.logprobs is None:
            return self
        if self.samples is None:
            raise ValueError("`logprobs` goes with `samples`: those drawn here come with their own")
        if len(self.logprobs) != len(self.samples):
            raise ValueError(
                f"`logprobs` must hold one number for each of the {len(self.samples)} samples, "
                f"not {len(self.logprobs)}"
            )
        return self

    def _refuse_drawing(self) -> None:
        for name in _DRAWING:
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is about drawing answers; it does not go with `samples`")


class BatchRequest(RequestModel):
    """Up to 256 score requests. A bad item gets an error line of its own and fails no other."""

    items: list[Any] = Field(
        min_length=1, max_length=MAX_ITEMS, description="Score requests, each as for POST /score."
    )


# A score as it is answered.


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
        "truncated_samples, indistinct_answers, no_correctness_model, target_unreachable, "
        "unsupported_candidate, correctness_label_mismatch or out_of_distribution."
    )
    message: str = Field(description="The same for a person.")
    differs: list[str] | None = Field(None, description="For a mismatch: the parts that differ.")


class CandidateOut(BaseModel):
    """What the answers say of the text given as `candidate`."""

    probability: float = Field(
        description="Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer "
        "to what the LLM means. Raw where `calibrated` is false."
    )
    mode: int | None = Field(
        description="The meaning that it belongs to: which eigenvalue, from 0, the largest; an index into "
        "`modes` as far as those go. Null where more of it lies outside of all answers than on any meaning: "
        "it says what none of them said."
    )
    probability_correct: float | None = Field(
        description="Probability, 0..1, that the candidate is right. Null in the cases in which the "
        "`probability_correct` of the response is null, and where `mode` is null. Unlike `probability`, it "
        "rests on verdicts: on whether answers to the calibration's questions were right."
    )


class DecisionOut(BaseModel):
    """Whether to let a text through, so that few of those let through are wrong."""

    action: Literal["answer", "abstain"] = Field(description="Let it through, or do not.")
    reason: str = Field(description="Why, and what to do with the text, for a person.")
    target_error: float = Field(description="Share of wrong ones allowed among those let through.")
    confidence: float = Field(
        description="How sure the promise is, 0..1: of calibrations on other questions drawn likewise, at "
        "least this share keep the error at or below `target_error`. It says nothing of this one text, and "
        "less of a target that was chosen since it is barely reachable."
    )
    threshold: float | None = Field(
        description="The least P(correct) that is let through; null where the target cannot be promised."
    )
    coverage: float = Field(
        description="Share of the calibration's questions that is let through, 0..1; 0 where none is."
    )


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
    probability_correct: float | None = Field(
        description="Probability that `answer` is right, 0..1, by the verdicts on the calibration's "
        "questions. Null where no calibration is applied, where it has no model of being right for so many "
        "answers, or where the model takes log-probabilities that these lack."
    )
    candidate: CandidateOut | None = Field(description="The `candidate` judged; null without one.")
    decision: DecisionOut | None = Field(
        description="What to do with the `candidate` or, without one, `answer`, to keep a target error; null "
        "where no calibration can decide and the request names no `target_error`. Without a "
        "`probability_correct`, as for a candidate whose `mode` is null: abstain."
    )
    lambda_max: float = Field(
        description="Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much "
        "of their meaning the answers share, not the probability that the answer is right."
    )
    entropy: float = Field(description="Von Neumann entropy served, nats. Higher = less certain.")
    entropy_normalized: float = Field(description="Entropy over the largest that the spectrum allows, 0..1.")
    calibrated: bool = Field(description="Whether a calibration that fits was applied.")
    uncalibrated: SpectrumValues = Field(description="The same two numbers without calibration.")
    calibration: CalibrationUsed | None = Field(description="The calibration used; null: none.")
    ood_p_value: float | None = Field(
        description="How like the calibration's rows the prompt is, 0..1: of prompts like them, at most this "
        "share look as unlike, by their question and by the length of their answers. Higher = more like. "
        "Below 0.02 a warning says so. Null where no calibration is applied, or one of a release before "
        "0.3, which cannot tell."
    )
    evidence: EvidenceOut | None = Field(
        description="What the log-probabilities say; null unless every answer has one."
    )
    warnings: list[WarningOut] = Field(description="What to know about this score.")
    model: str | None = Field(description="Model that answered; null for supplied samples.")
    embedder: str = Field(description="Embedder of the answers.")
    num_samples: int = Field(description="Answers scored.")
    num_distinct: int = Field(description="Distinct ones among them.")
    num_truncated: int = Field(description="Answers cut by max_tokens; they count.")
    num_empty: int = Field(
        description="Answers without text: left out as failed, unless the settings say what they mean."
    )
    modes: list[ModeOut] | None = Field(None, description="The leading meanings, at most five.")
    samples: list[str] | None = Field(None, description="The answers, in the order drawn.")
    spectrum: SpectrumOut | None = Field(None, description="The whole spectrum.")
    usage: UsageOut | None = Field(description="Tokens used; null for supplied samples.")
    timings_ms: TimingsOut = Field(description="Where the time went.")


# How a score becomes its answer and headers.


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


# What the domain makes of a request to score.


def to_sampling(sent: SamplingIn | None, default: Sampling) -> Sampling:
    """Return the default with what the caller sent put over it."""
    if sent is None:
        return default
    given = sent.model_dump(exclude_unset=True)
    if "stop" in given:
        given["stop"] = tuple(given["stop"])
    return replace(default, **given)


def to_command(body: ScoreRequest, serving: Serving, arrived: float | None) -> ScoreCommand:
    """Return the domain's form of a request."""
    # Any: what types the call does not follow unpacked dictionaries.
    asked: dict[str, Any] = {
        "calibration": body.calibration,
        "candidate": body.candidate,
        "target": serving.target(body.target_error, body.confidence),
        "arrived": arrived,
    }
    if body.samples is not None:
        return ScoreCommand(
            samples=tuple(body.samples),
            logprobs=None if body.logprobs is None else tuple(body.logprobs),
            source_label=body.source_label or "",
            asked=question_text(body.prompt, _turns(body)),
            **asked,
        )
    return ScoreCommand(_generation(body, serving), **asked)


def _number(body: ScoreRequest, serving: Serving) -> int:
    """Return how many answers are drawn."""
    if body.effort is not None:
        return serving.efforts.num_samples(body.effort)
    return body.num_samples or serving.num_samples


def _turns(body: ScoreRequest) -> tuple[Message, ...] | None:
    if body.messages is None:
        return None
    return tuple(Message(turn.role, turn.content) for turn in body.messages)


def _generation(body: ScoreRequest, serving: Serving) -> GenerationRequest:
    messages = _turns(body)
    base = serving.sampling if messages is None else serving.messages_sampling
    return GenerationRequest(
        num_samples=_number(body, serving),
        sampling=to_sampling(body.sampling, base),
        prompt=body.prompt,
        messages=messages,
        model=body.model,
        deadline_s=None if body.deadline_ms is None else body.deadline_ms / 1000,
    )
