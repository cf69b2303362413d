"""POST /score, POST /score/batch and GET /scores/{id}."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, Relay, RequestModel, parse, read_json, while_connected
from service.api.errors import error_body, internal_body, log_problem, request_id_of
from service.api.openapi import json_body, ok, recorded, responses
from service.calibration.rows import LogProbability, TokenLogProbability
from service.claims.comparison import Compare
from service.errors import EigencalError, InvalidRequest, NotFound, Overloaded
from service.heavy_json import MAX_BATCH_VALUES, is_heavy
from service.llm.port import GenerationRequest, Message, Sampling, question_text
from service.scoring.claims import align_tokens
from service.scoring.score import (
    EFFORTS,
    HEADERS,
    MAX_ITEMS,
    Effort,
    Mark,
    Score,
    ScoreCommand,
    ScorePart,
    Serving,
)
from service.scoring.services import ScoringDep, ScoringServices

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


router = APIRouter(tags=["score"], dependencies=[Depends(score_scope)])
EXAMPLES = recorded("examples.json")
SCORED = {name: example["response"] | {"status": "scored"} for name, example in EXAMPLES.items()}
BATCH_CONCURRENCY = 8  # items of one batch
BATCH_PATIENCE_S = 300.0
_ID = re.compile(r"scr_[0-9A-Z]{26}\Z")
LLM_CODES = (
    "llm_error",
    "llm_bad_response",
    "no_usable_answers",
    "llm_unavailable",
    "deadline_exceeded",
    "model_not_found",
)
PART_CODES = ("embedder_unavailable", "store_unavailable", "overloaded", "damaged_row", "internal")
BODY_CODES = ("invalid_request", "too_few_samples", "body_too_large", "unsupported_media_type")


async def score_one(app: ScoringServices, body: ScoreRequest, arrived: float | None) -> Score:
    """Score one request and count it."""
    with app.metrics.under_way():
        score = await app.scorer.score(to_command(body, app.serving, arrived))
    app.metrics.scored(score)
    return score


@router.post(
    "/score",
    summary="Score how uncertain the LLM is about a prompt",
    responses={
        200: {
            **ok(Score, {name: example["response"] for name, example in EXAMPLES.items()}),
            "headers": HEADERS,
        },
        **responses(*BODY_CODES, *KEY_CODES, *LLM_CODES, *PART_CODES),
    },
    openapi_extra={
        **json_body("ScoreRequest", {name: example["request"] for name, example in EXAMPLES.items()}),
        **BEARER,
    },
)
async def post_score(request: Request, app: ScoringDep) -> Response:
    """Draw answers (or take yours), embed them, and return the spectrum's largest eigenvalue and entropy.

    The values are calibrated when a calibration fits this very set-up; otherwise the default calibration
    serves them, `calibrated` is false and a warning says why. A `candidate` is judged by the answers; a
    `target_error` asks whether to let it, or without one the `answer`, through. With `effort` `none` nothing
    is drawn: the `candidate` is judged by its log-probability alone, and there is no spectrum.
    """
    app.admission.refuse_if_full("score")
    body = await read_json(request, ScoreRequest)
    with app.admission.one("score"):
        score = await while_connected(request, score_one(app, body, request.scope.get("eigencal.arrived")))
    if score is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    content = score.json_text(body.return_)
    app.kept.keep(score.id, owner_of(request), content)
    return Response(content, headers=score.headers(), media_type="application/json")


@router.post(
    "/score/batch",
    summary="Score up to 256 prompts",
    response_class=Response,
    responses={
        200: {
            "description": "A line for each item as it is done: `{index, result}` or `{index, error}`.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
        **responses(*BODY_CODES, *KEY_CODES, "overloaded", "internal"),
    },
    openapi_extra={**json_body("BatchRequest"), **BEARER},
)
async def post_batch(request: Request, app: ScoringDep) -> Response:
    """Score many prompts; lines come in the order in which they are done, and a bad item fails no other."""
    app.admission.refuse_if_full("batch")
    body = await read_batch(request)
    lines = batch_lines(app, body.items, request_id_of(request), owner_of(request))
    async with AsyncExitStack() as ending:
        ending.enter_context(app.admission.one("batch"))
        return Relay(200, {"content-type": "application/x-ndjson"}, lines, ending.pop_all())
    raise AssertionError("unreachable: the block returns or raises")


async def read_batch(request: Request) -> BatchRequest:
    """Return the body. Raises like `read_json`, but half a surrogate pair in an item fails only that item."""
    try:
        return await read_json(request, BatchRequest, MAX_BATCH_VALUES)
    except InvalidRequest:
        if not is_heavy(body := await request.body(), MAX_BATCH_VALUES):
            with suppress(ValueError, RecursionError):
                return BatchRequest.model_validate(json.loads(body.decode()))
        raise


async def batch_lines(
    app: ScoringServices, items: list[Any], request_id: str | None, owner: str = ""
) -> AsyncGenerator[bytes, None]:
    """Yield a line as each item is done, and store its score. Closing the iterator cancels running items."""
    slots = asyncio.Semaphore(BATCH_CONCURRENCY)

    async def line(index: int, item: object) -> bytes:
        async with slots, app.admission.items:
            return await batch_line(app, index, item, request_id, owner)

    tasks = [asyncio.ensure_future(line(index, item)) for index, item in enumerate(items)]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        # Shielded: a hang-up cancels this task repeatedly, which must not interrupt the cleanup of the items.
        await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))


Part = TypeVar("Part")


async def score_in_turn(app: ScoringServices, body: ScoreRequest) -> Score:
    """Score an item of a batch. The item waits in cases where a single request would be Overloaded.

    Samples are drawn only once. Raises Overloaded if there was no room until the item's deadline, or for
    `BATCH_PATIENCE_S`.
    """
    patience_s = BATCH_PATIENCE_S if body.deadline_ms is None else body.deadline_ms / 1000
    began = time.perf_counter()  # the wait counts in the item's deadline

    async def in_turn(part: Callable[[], Awaitable[Part]]) -> Part:
        while True:
            try:
                return await part()
            except Overloaded as error:
                wait_s = error.retry_after_s or 1.0
                if time.perf_counter() - began + wait_s > patience_s:
                    raise
            # Random, so that items do not all retry at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))

    command = to_command(body, app.serving, began)
    with app.metrics.under_way():
        drawn = await in_turn(lambda: app.scorer.draw(command))
        drawn_at = time.perf_counter()

        async def finish() -> Score:
            queued_s = drawn.seconds["queue"] + time.perf_counter() - drawn_at
            late = replace(drawn, seconds={**drawn.seconds, "queue": queued_s})
            return await app.scorer.finish(late, command.candidate)

        score = await in_turn(finish)
    app.metrics.scored(score)
    return score


async def batch_line(
    app: ScoringServices, index: int, item: object, request_id: str | None, owner: str
) -> bytes:
    """Return the line of one item; errors become an error line."""
    try:
        # Through bytes, so that an item is parsed exactly like the body of a single request.
        body = parse(json.dumps(item).encode(), ScoreRequest)
        score = await score_in_turn(app, body)
        content = score.json_text(body.return_)
        app.kept.keep(score.id, owner, content)
        return b'{"index":%d,"result":%s}\n' % (index, content.encode())
    except EigencalError as error:
        problem = error_body(error, request_id)
        log_problem(problem, f"POST /score/batch, item {index}")
    except Exception as error:
        problem = internal_body(request_id)
        log_problem(problem, f"POST /score/batch, item {index}", error)
    return json.dumps({"index": index, "error": problem}).encode() + b"\n"


class KeptScore(BaseModel):
    """A score as it was answered, and how far it is; further fields as of POST /score or of the answer."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Id of this score.")
    status: Literal["pending", "scored", "not_scored", "failed"] = Field(
        description="pending: ask again. scored: with everything that POST /score returned. not_scored, "
        "failed: `warning` says why."
    )
    marks: list[Mark] | None = Field(
        None, description="Of a chat that asked for them: its `claims`, for the reader. Absent elsewhere."
    )


@router.get(
    "/scores/{score_id}",
    summary="A score by its id",
    responses={
        200: ok(
            KeptScore, {"pending": {"id": "scr_01K9ZD3QW40000000000000000", "status": "pending"}} | SCORED
        ),
        **responses("not_found", *KEY_CODES, "store_unavailable", "damaged_row", "internal"),
    },
    response_model=None,
    openapi_extra=BEARER,
)
async def get_score(
    request: Request, app: ScoringDep, score_id: Annotated[str, Path(description="Id of a score.")]
) -> dict[str, Any]:
    """Return what was answered under this id, from any replica, for as long as the settings keep it.

    An hour unless set otherwise, and the latest 10,000. Made under another key, it is not found.
    """
    # Ids of another form are refused here: some databases fail on characters that no id has.
    document = await app.kept.find(score_id, owner_of(request)) if _ID.match(score_id) else None
    if document is None:
        raise NotFound("No score has this id, it is no longer kept, or it was made under another key.")
    return {"status": "scored"} | document
