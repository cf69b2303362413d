"""The wire forms of scoring: requests in, scores out."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.api.http.bodies import RequestModel

ScorePart = Literal["samples", "modes", "spectrum"]
Text = Annotated[str, Field(max_length=1_000_000)]
Answer = Annotated[str, Field(max_length=200_000)]
MAX_ITEMS = 256


class MessageIn(RequestModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: Text = Field(min_length=1, description="What is said.")


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
_DRAWING = ("num_samples", "sampling", "model", "deadline_ms")


def _with(*names: str) -> dict[str, Any]:
    return {"title": f"with {' and '.join(names)}", "type": "object", "required": list(names)}


_EITHER: dict[str, Any] = {
    "anyOf": [_with("prompt"), _with("messages"), _with("samples")],
    "not": _with("prompt", "messages"),
    "dependentSchemas": {
        "samples": {"type": "object", "not": {"type": "object", "anyOf": [_with(name) for name in _DRAWING]}},
        "source_label": _with("samples"),
    },
}


class ScoreRequest(RequestModel):
    """What to score: `prompt` or `messages`, or `samples` already drawn (then `prompt` is optional)."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    prompt: Text | None = Field(
        None, pattern=r"\S", description="A question; the service puts its prompt shape around it."
    )
    messages: list[MessageIn] | None = Field(
        None, min_length=1, max_length=1024, description="A conversation, sent to the LLM as it is."
    )
    samples: list[Answer] | None = Field(
        None,
        min_length=2,
        max_length=MAX_ITEMS,
        description="Answers already drawn; the LLM is not called. Empty ones count as one outcome.",
    )
    source_label: str | None = Field(
        None, max_length=200, description="Who drew `samples`: a calibration fits only its own label."
    )
    num_samples: int | None = Field(None, ge=2, le=MAX_ITEMS, description="Answers to draw.")
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
        description="Time for the answers to come; what has come by then is scored (two at least).",
    )

    @model_validator(mode="after")
    def one_source(self) -> Self:
        """Refuse no source of answers, or two."""
        if self.prompt is not None and self.messages is not None:
            raise ValueError("send `prompt` or `messages`, not both")
        if self.prompt is None and self.messages is None and self.samples is None:
            raise ValueError("send `prompt`, `messages` or `samples`")
        if self.samples is not None:
            self._refuse_drawing()
        elif self.source_label is not None:
            raise ValueError("`source_label` goes with `samples`")
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


class SpectrumValues(BaseModel):
    """The two numbers of a spectrum."""

    lambda_max: float = Field(description="Largest eigenvalue, 0..1. Higher = more certain.")
    entropy: float = Field(description="Von Neumann entropy in nats. Higher = less certain.")


class CalibrationUsed(BaseModel):
    """The calibration that the score used, with the parameters for its number of answers."""

    id: str = Field(description="Id of the calibration.")
    method: Literal["depolarized", "temperature"] = Field(description="Its map.")
    temperature: float = Field(description="Matrix temperature T applied.")
    depolarization: float = Field(description="Depolarisation g applied, 0 for `temperature`.")
    created_at: datetime = Field(description="When it was fitted.")


class WarningOut(BaseModel):
    """Something the caller should know."""

    code: str = Field(
        description="calibration_missing, calibration_mismatch, partial_samples, truncated_samples or "
        "indistinct_answers."
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
