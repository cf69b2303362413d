"""The bodies of POST /score and POST /score/batch, and the command for a score made of them."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from service.calibration.rows import LogProbability, TokenLogProbability
from service.claims.comparison import Compare
from service.http.bodies import RequestModel
from service.llm.prompt import UNKNOWN, Message, Sampling
from service.scoring.claims import align_tokens
from service.scoring.score import AUTO, MAX_ITEMS, NumSamples, ScoreCommand, ScorePart, Serving

MAX_TOKENS = 32_768
# Tolerance for log-probabilities that servers round: per token in nats, and as a share of the sum.
ROUNDING = 0.01
# Tolerance in nats for a missing end token. An end token with a probability below e^-20 is never drawn.
LEAST_END = 20.0
PromptText = Annotated[str, Field(max_length=1_000_000)]
Answer = Annotated[str, Field(max_length=200_000)]


class MessageIn(RequestModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Speaker of the turn.")
    content: PromptText = Field(min_length=1, description="Text of the turn.")


class SamplingIn(RequestModel):
    """Sampling parameters of the LLM. Parameters that are left out come from the settings."""

    temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature. With 0, all answers are equal."
    )
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling: probability mass kept.")
    top_k: int | None = Field(
        None, ge=0, le=1_000_000, description="Number of most likely tokens kept. 0: all."
    )
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Largest number of tokens in an answer."
    )
    stop: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        None, max_length=16, description="Strings that end an answer."
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Seed passed to the LLM. Left out: none. Some servers do not accept a seed.",
    )


class TokenIn(RequestModel):
    """A token of the candidate, as in chats (`choices[0].logprobs.content`). Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    token: str = Field(max_length=1000, description="Text of the token.")
    logprob: TokenLogProbability = Field(description="Natural-log probability of the token.")


# The rules of the validator below in JSON Schema. Every part has a type: Swagger UI reads a `not` without a
# type as "not anything", and shows the whole schema as "never".
_DRAWING = ("num_samples", "sampling", "model", "deadline_ms")
_NEEDS = {
    "logprobs": "samples",
    "source_label": "samples",
    "candidate_logprob": "candidate",
    "candidate_tokens": "candidate",
}


def _with(*names: str) -> dict[str, Any]:
    return {"title": f"with {' and '.join(names)}", "type": "object", "required": list(names)}


_EITHER: dict[str, Any] = {
    "anyOf": [_with("prompt"), _with("messages"), _with("samples")],
    "not": _with("prompt", "messages"),
    "dependentSchemas": {
        "samples": {"type": "object", "not": {"type": "object", "anyOf": [_with(name) for name in _DRAWING]}},
        **{name: _with(needed) for name, needed in _NEEDS.items()},
    },
    "if": {**_with("num_samples"), "properties": {"num_samples": {"type": "integer", "const": 0}}},
    "then": _with("candidate", "candidate_logprob"),
}


class ScoreRequest(RequestModel):
    """A request for a score: `prompt` or `messages`, or drawn `samples` (`prompt` is then optional)."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    prompt: PromptText | None = Field(
        None, pattern=r"\S", description="A question. The service wraps it in its prompt format."
    )
    messages: list[MessageIn] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="A conversation, sent to the LLM unchanged. The last turn must not be the assistant's.",
    )
    samples: list[Answer] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ITEMS,
        description="Answers already drawn. The LLM is called only for a self-check, if the calibration "
        "needs it or you ask for it. Empty answers do not count. At least two are needed. One is enough if "
        "it has a log-probability and a calibration by evidence fits.",
    )
    logprobs: list[LogProbability] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ITEMS,
        description="Natural-log probability of each whole sample, including the token that ended it. One "
        "number for each sample. Leave this out if a sample is only a part of the drawn text. (Rows of "
        "`POST /calibrate` may also call it `logprob`. Here only this name is accepted.)",
    )
    source_label: str | None = Field(
        None,
        max_length=200,
        description="Name of the model or system that drew `samples`. A calibration fits only its own label.",
    )
    num_samples: NumSamples | None = Field(
        None,
        description="Number of answers to draw. At least two are needed. One is enough if a calibration by "
        "evidence fits. 0 draws no answers: the `candidate` is judged by its "
        "`candidate_logprob`, and there is no spectrum. `auto` draws the number that the report of the "
        "calibration recommends (none only with a `candidate_logprob`); without a recommendation, 3. Left "
        "out: the number of the settings.",
    )
    candidate: Answer | None = Field(
        None,
        description="A text to judge by the answers, for example the text about to be sent. It does not "
        "count as an answer. A blank candidate is refused.",
    )
    candidate_logprob: LogProbability | None = Field(
        None,
        description="Natural-log probability of the whole `candidate`, including the token that ended it, "
        "under the LLM that wrote it. Without samples, the candidate is judged by it alone.",
    )
    candidate_tokens: list[TokenIn] | None = Field(
        None,
        max_length=MAX_TOKENS,
        description="Tokens of the `candidate` in order. They give the log-probabilities of its claims, "
        "even without samples. Tokens of another text are ignored. They are refused if their sum "
        "contradicts `candidate_logprob`.",
    )
    target_error: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Largest share of wrong answers among those let through, for `decision`. Left out: the "
        "target of the settings, otherwise 0.2 if a calibration can decide.",
    )
    confidence: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Confidence level with which the target is kept. Left out: 0.9.",
    )
    claims: bool | None = Field(
        None,
        description="Whether to also score the `candidate` or, without one, `answer` claim by claim. Left "
        "out: the text is scored claim by claim if it reaches the length in the settings (400 characters).",
    )
    compare: Compare | None = Field(
        None,
        description="How distinct answers are compared. `embeddings`: by their embeddings. `llm`: the LLM "
        "is also asked whether both answers of a pair say the same. Claims are compared by their facts. "
        "Left out: the service's setting.",
    )
    self_check: bool | None = Field(
        None,
        description="Whether to ask the LLM with one token if the judged text is correct. Calibrations made "
        "with such self-checks need them for P(correct). Left out: the service's setting.",
    )
    sampling: SamplingIn | None = Field(None, description="Sampling parameters of the answers.")
    model: str | None = Field(
        None, min_length=1, max_length=256, description="Model requested from the LLM server."
    )
    calibration: str = Field(
        "active",
        pattern=r"^(active|none|cal_[0-9A-Z]{26})$",
        description="`active`, `none` (raw values) or the id of a calibration.",
    )
    return_: list[ScorePart] = Field(
        ["modes"], alias="return", max_length=16, description="Further parts of the score to return."
    )
    deadline_ms: int | None = Field(
        None,
        ge=1,
        le=3_600_000,
        description="Time limit for the score, in milliseconds. If it passes, the result is the error "
        "`deadline_exceeded` (504).",
    )

    @field_validator("messages")
    @classmethod
    def left_to_answer(cls, turns: list[MessageIn] | None) -> list[MessageIn] | None:
        """Refuse a conversation that ends with the assistant: servers differ in how they continue it."""
        if turns and turns[-1].role == "assistant":
            raise ValueError("the last turn is the assistant's; send its text as `candidate` instead")
        return turns

    @model_validator(mode="after")
    def consistent(self) -> Self:
        """Require a source of answers, and refuse fields that need, exclude or contradict each other."""
        if self.prompt is not None and self.messages is not None:
            raise ValueError("send `prompt` or `messages`, not both")
        if self.prompt is None and self.messages is None and self.samples is None:
            raise ValueError("send `prompt`, `messages` or `samples`")
        sent = {name for name in type(self).model_fields if getattr(self, name) is not None}
        for name, needed in _NEEDS.items():
            if name in sent and needed not in sent:
                raise ValueError(f"`{name}` needs `{needed}`")
        for name in ("candidate", "candidate_logprob"):
            if self.num_samples == 0 and name not in sent:
                raise ValueError(f"`num_samples` 0 draws no answers, so it needs a `{name}`")
        for name in _DRAWING:
            if self.samples is not None and name in sent:
                raise ValueError(f"`{name}` applies to drawing answers; leave it out with `samples`")
        if self.samples and self.logprobs and len(self.samples) != len(self.logprobs):
            raise ValueError(
                f"`logprobs` must hold one number for each of the {len(self.samples)} samples, "
                f"not {len(self.logprobs)}"
            )
        if self.candidate is not None and self.candidate_logprob is not None and self.candidate_tokens:
            _refuse_contradiction(self.candidate, self.candidate_logprob, self.candidate_tokens)
        return self


def _refuse_contradiction(candidate: str, total: float, tokens: list[TokenIn]) -> None:
    """Raise ValueError if the candidate's log-probability contradicts its own tokens."""
    aligned = align_tokens(candidate.strip(), [(token.token, token.logprob) for token in tokens])
    if aligned is None:
        return
    summed = float(aligned[2].sum())
    rounding = ROUNDING * max(1.0, abs(summed)) + ROUNDING * len(aligned[2])
    if not summed - LEAST_END <= total <= summed + rounding:
        raise ValueError(
            f"`candidate_logprob` is {total:.4g}, and the tokens of `candidate_tokens` sum to "
            f"{summed:.4g}: send one of the two, or both of the same answer"
        )


class BatchRequest(RequestModel):
    """Up to 256 score requests. A bad item gets its own error line and does not affect the others."""

    items: list[Any] = Field(
        min_length=1, max_length=MAX_ITEMS, description="Score requests in the format of POST /score."
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
    """Return the command for a request; `serving` has the values that the request leaves out."""
    turns = None if body.messages is None else tuple(Message(one.role, one.content) for one in body.messages)
    is_known = body.prompt is not None or turns is not None
    sampling = serving.sampling if turns is None else serving.messages_sampling
    samples, logprobs = body.samples, body.logprobs
    return ScoreCommand(
        num_samples=serving.number_of(body.num_samples) if samples is None else len(samples),
        sampling=to_sampling(body.sampling, sampling),
        prompt=serving.template.prompt(body.prompt, turns) if is_known else UNKNOWN,
        model=body.model,
        deadline_s=None if body.deadline_ms is None else body.deadline_ms / 1000,
        samples=None if samples is None else tuple(samples),
        logprobs=None if logprobs is None else tuple(logprobs),
        source_label=body.source_label or "",
        calibration=body.calibration,
        candidate=body.candidate,
        candidate_logprob=body.candidate_logprob,
        candidate_tokens=tuple((token.token, token.logprob) for token in body.candidate_tokens or ()),
        as_recommended=body.num_samples == AUTO,
        target=serving.target(body.target_error, body.confidence),
        claims=body.claims,
        compare=body.compare,
        self_check=body.self_check,
        arrived=arrived,
    )
