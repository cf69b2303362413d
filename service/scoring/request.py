"""The bodies of POST /score and POST /score/batch, and the command for a score made of them."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from service.api.bodies import RequestModel
from service.calibration.rows import LogProbability, TokenLogProbability
from service.claims.comparison import Compare
from service.llm.port import GenerationRequest, Message, Sampling, question_text
from service.scoring.claims import align_tokens
from service.scoring.score import EFFORTS, MAX_ITEMS, Effort, ScoreCommand, ScorePart, Serving

MAX_TOKENS = 32_768
# Tolerance for log-probabilities that servers round: per token in nats, and as a share of the sum.
ROUNDING = 0.01
# Tolerance in nats for a missing end token. An end token with a probability below e^-20 is never drawn.
LEAST_END = 20.0
PromptText = Annotated[str, Field(max_length=1_000_000)]
Answer = Annotated[str, Field(max_length=200_000)]


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
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Most tokens of an answer.")
    stop: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        None, max_length=16, description="Strings that end an answer."
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Seed passed to the LLM; left out: none. Some servers cannot take one.",
    )


class TokenIn(RequestModel):
    """A token of the candidate, as chats tell it (`choices[0].logprobs.content`); more of it is ignored."""

    model_config = ConfigDict(extra="ignore")

    token: str = Field(max_length=1000, description="Its text.")
    logprob: TokenLogProbability = Field(description="Its natural-log probability.")


# The rules of the validator below in JSON Schema. Every part has a type: Swagger UI reads a `not` without a
# type as "not anything", and shows the whole schema as "never".
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
        "candidate_logprob": _with("candidate"),
        "candidate_tokens": _with("candidate"),
    },
    "if": {**_with("effort"), "properties": {"effort": {"type": "string", "const": "none"}}},
    "then": _with("candidate", "candidate_logprob"),
}


class ScoreRequest(RequestModel):
    """What to score: `prompt` or `messages`, or `samples` already drawn (then `prompt` is optional)."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

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
        "for 3, 8 and 20 of them. More cost more tokens. `none` draws none and costs no token: the "
        "`candidate` is judged by its `candidate_logprob`, and there is no spectrum. `auto`: as many as the "
        "calibration's report recommends (none only with a `candidate_logprob`), else as `low`.",
    )
    candidate: Answer | None = Field(
        None,
        description="A text to judge by the answers, such as the one about to be sent. It never counts as "
        "one of them. A blank one is refused, unless the settings say what empty answers mean.",
    )
    candidate_logprob: LogProbability | None = Field(
        None,
        description="The natural-log probability of the whole `candidate`, the token that ended it included, "
        "by the LLM that wrote it. It counts where no answer is drawn.",
    )
    candidate_tokens: list[TokenIn] | None = Field(
        None,
        max_length=MAX_TOKENS,
        description="The tokens of the `candidate`, in order: what they tell of each of its claims, without "
        "any answer drawn. Tokens of another text are not used. Refused if their sum contradicts "
        "`candidate_logprob`.",
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
        description="Confidence with which the target is kept; left out: 0.9.",
    )
    claims: bool | None = Field(
        None,
        description="Whether to score the `candidate` or, without one, `answer` claim by claim, too. Left "
        "out: where it has as many characters as the settings say (400).",
    )
    compare: Compare | None = Field(
        None,
        description="How distinct answers are compared: by their `embeddings`, or `llm`: the LLM is also "
        "asked of each pair whether both say the same. Left out: as the service is set up.",
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
        """Refuse a conversation that ends with the assistant: servers differ in how they continue it."""
        if turns and turns[-1].role == "assistant":
            raise ValueError("the last turn is the assistant's; send its text as `candidate` instead")
        return turns

    @model_validator(mode="after")
    def one_source(self) -> Self:
        """Require a source of answers: `prompt`, `messages` or `samples`."""
        if self.prompt is not None and self.messages is not None:
            raise ValueError("send `prompt` or `messages`, not both")
        if self.effort is not None and self.num_samples is not None:
            raise ValueError("send `num_samples` or `effort`, not both")
        if self.prompt is None and self.messages is None and self.samples is None:
            raise ValueError("send `prompt`, `messages` or `samples`")
        for name in ("candidate_logprob", "candidate_tokens"):
            if getattr(self, name) is not None and self.candidate is None:
                raise ValueError(f"`{name}` goes with `candidate`")
        if self.effort == "none":
            self._refuse_unjudged()
        if self.samples is not None:
            self._refuse_drawing()
        elif self.source_label is not None:
            raise ValueError("`source_label` goes with `samples`")
        return self

    @model_validator(mode="after")
    def a_log_probability_per_sample(self) -> Self:
        """Require one log-probability per sample if `logprobs` is set."""
        if self.logprobs is None:
            return self
        if self.samples is None:
            raise ValueError("`logprobs` goes with `samples`: answers drawn by the service have their own")
        if len(self.logprobs) != len(self.samples):
            raise ValueError(
                f"`logprobs` must hold one number for each of the {len(self.samples)} samples, "
                f"not {len(self.logprobs)}"
            )
        return self

    @model_validator(mode="after")
    def one_log_probability_of_the_candidate(self) -> Self:
        """Refuse a `candidate_logprob` that contradicts the candidate's own tokens."""
        total = self.candidate_logprob
        if total is None or not self.candidate_tokens or self.candidate is None:
            return self
        aligned = align_tokens(
            self.candidate.strip(), [(token.token, token.logprob) for token in self.candidate_tokens]
        )
        if aligned is None:
            return self
        summed = float(aligned[2].sum())
        rounding = ROUNDING * max(1.0, abs(summed)) + ROUNDING * len(aligned[2])
        if not summed - LEAST_END <= total <= summed + rounding:
            raise ValueError(
                f"`candidate_logprob` is {total:.4g}, and the tokens of `candidate_tokens` sum to "
                f"{summed:.4g}: send one of the two, or both of the same answer"
            )
        return self

    def _refuse_unjudged(self) -> None:
        for name in ("candidate", "candidate_logprob"):
            if getattr(self, name) is None:
                raise ValueError(f"`effort` none draws no answers, so it needs a `{name}`")

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
    """Return the default sampling, overridden by the parameters that the caller sent."""
    if sent is None:
        return default
    overrides = sent.model_dump(exclude_unset=True)
    if "stop" in overrides:
        overrides["stop"] = tuple(overrides["stop"])
    return replace(default, **overrides)


def to_command(body: ScoreRequest, serving: Serving, arrived: float | None) -> ScoreCommand:
    """Return the command for a request."""
    # Any, because mypy does not check unpacked dictionaries.
    common: dict[str, Any] = {
        "calibration": body.calibration,
        "candidate": body.candidate,
        "candidate_logprob": body.candidate_logprob,
        "candidate_tokens": tuple((token.token, token.logprob) for token in body.candidate_tokens or ()),
        "as_recommended": body.effort == "auto",
        "claims": body.claims,
        "compare": body.compare,
        "target": serving.target(body.target_error, body.confidence),
        "arrived": arrived,
    }
    if body.samples is not None:
        return ScoreCommand(
            samples=tuple(body.samples),
            logprobs=None if body.logprobs is None else tuple(body.logprobs),
            source_label=body.source_label or "",
            asked=question_text(body.prompt, _turns(body)),
            **common,
        )
    return ScoreCommand(_generation(body, serving), **common)


def _turns(body: ScoreRequest) -> tuple[Message, ...] | None:
    if body.messages is None:
        return None
    return tuple(Message(turn.role, turn.content) for turn in body.messages)


def _generation(body: ScoreRequest, serving: Serving) -> GenerationRequest:
    messages = _turns(body)
    base = serving.sampling if messages is None else serving.messages_sampling
    number = body.num_samples or serving.num_samples
    return GenerationRequest(
        num_samples=number if body.effort is None else EFFORTS[body.effort],
        sampling=to_sampling(body.sampling, base),
        prompt=body.prompt,
        messages=messages,
        model=body.model,
        deadline_s=None if body.deadline_ms is None else body.deadline_ms / 1000,
    )
