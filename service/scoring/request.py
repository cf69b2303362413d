"""POST /score and /score/batch: the bodies, and the command that is made of one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from service.api.bodies import RequestModel
from service.calibration.rows import LogProbability
from service.llm.port import GenerationRequest, Message, Sampling, question_text
from service.scoring.command import EFFORTS, Effort, ScoreCommand, Serving
from service.scoring.score import ScorePart

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
        "for 3, 8 and 20 of them. More cost more tokens.",
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
        return EFFORTS[body.effort]
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
