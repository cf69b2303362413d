"""POST /score, POST /score/batch and GET /scores/{id}."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Body, Path, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from service.errors import NotFound, Overloaded
from service.http.door import StreamingBody
from service.http.openapi import BEARER, KEY_CODES, ok, recorded, responses
from service.http.problems import refusal, report, request_id_of
from service.scoring.request import BatchRequest, ScoreRequest, to_command
from service.scoring.score import HEADERS, Mark, Score
from service.scoring.scorer import Costs, in_time
from service.scoring.service import ScoringDep, ScoringService

router = APIRouter(tags=["score"])
EXAMPLES = recorded("examples.json")
REQUESTS = {name: {"value": example["request"]} for name, example in EXAMPLES.items()}
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
    openapi_extra=BEARER,
)
async def post_score(
    request: Request,
    app: ScoringDep,
    body: Annotated[ScoreRequest, Body(openapi_examples=REQUESTS)],
) -> Response:
    """Draw answers (or use yours), embed them, and return the spectrum's largest eigenvalue and entropy.

    The values are calibrated if a calibration fits this set-up. Otherwise they are raw, `calibrated` is false
    and a warning gives the reason. A `candidate` is judged by the answers. With one token, the LLM also
    checks the judged text (`self_check`). With a `target_error`, the response has a decision: let the
    `candidate` or, without one, the `answer` through, or hold it back. With `num_samples` 0, no answers are
    drawn: the `candidate` is judged by its log-probability and the self-check, and there is no spectrum.
    """
    command = to_command(body, app.serving, request.scope.get("eigencal.arrived"))
    with app.metrics.under_way():
        score = await app.scorer.score(command)
    return app.respond(request, score, body.return_)


@router.post(
    "/score/batch",
    summary="Score up to 256 prompts",
    response_class=Response,
    responses={
        200: {
            "description": "One line per item when it is done: `{index, result}` or `{index, error}`.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
        **responses(*BODY_CODES, *KEY_CODES, "overloaded", "internal"),
    },
    openapi_extra=BEARER,
)
async def post_batch(request: Request, app: ScoringDep, body: BatchRequest) -> Response:
    """Score up to 256 prompts. Lines arrive in the order of completion.

    A bad item gets an error line and does not affect the others.
    """
    lines = batch_lines(app, body.items, request_id_of(request), request.state.caller)
    return StreamingBody(200, {"content-type": "application/x-ndjson"}, lines)


async def batch_lines(
    app: ScoringService, items: list[Any], request_id: str | None, owner: str = ""
) -> AsyncGenerator[bytes, None]:
    """Yield a line as each item is done, and store its score. Closing the iterator cancels running items."""
    slots = asyncio.Semaphore(BATCH_CONCURRENCY)

    async def line(index: int, item: object) -> bytes:
        async with slots, app.batch_items:
            return await batch_line(app, index, item, request_id, owner)

    tasks = [asyncio.ensure_future(line(index, item)) for index, item in enumerate(items)]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        # Shielded: another cancellation must not interrupt the cleanup of the items.
        await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))


Part = TypeVar("Part")


async def score_in_turn(app: ScoringService, body: ScoreRequest) -> Score:
    """Score an item of a batch. The item waits in cases where a single request would be Overloaded.

    Samples are drawn only once. Raises Overloaded if there was no room for `BATCH_PATIENCE_S`, and
    DeadlineExceeded.
    """
    began = time.perf_counter()  # the wait counts in the item's deadline

    async def in_turn(part: Callable[[], Awaitable[Part]]) -> Part:
        while True:
            try:
                return await part()
            except Overloaded as error:
                wait_s = error.retry_after_s or 1.0
                if time.perf_counter() - began + wait_s > BATCH_PATIENCE_S:
                    raise
            # Random, so that items do not all retry at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))

    command = to_command(body, app.serving, began)
    with app.metrics.under_way():
        async with in_time(command):
            drawn = await in_turn(lambda: app.scorer.draw(command))
            drawn_at = time.perf_counter()

            async def finish() -> Score:
                costs = Costs({**drawn.costs.seconds}, drawn.costs.usage)  # a further try begins anew
                costs.add("queue", drawn_at)
                return await app.scorer.finish(replace(drawn, costs=costs), command.candidate)

            return await in_turn(finish)


async def batch_line(
    app: ScoringService, index: int, item: object, request_id: str | None, owner: str
) -> bytes:
    """Return the line of one item; errors become an error line."""
    try:
        try:
            body = ScoreRequest.model_validate(item)
        except ValidationError as error:
            raise refusal(error) from None
        score = await score_in_turn(app, body)
        content = app.save(score, owner, body.return_)
        return b'{"index":%d,"result":%s}\n' % (index, content.encode())
    except Exception as error:
        problem = report(error, request_id, f"POST /score/batch, item {index}")
    return json.dumps({"index": index, "error": problem}).encode() + b"\n"


class KeptScore(BaseModel):
    """A stored score and its state. Further fields are those of POST /score or of the chat's score."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Id of the score.")
    status: Literal["pending", "scored", "not_scored", "failed"] = Field(
        description="pending: ask again later. scored: all fields that POST /score returned are present. "
        "not_scored, failed: `warning` gives the reason."
    )
    marks: list[Mark] | None = Field(
        None,
        description="The claims of a chat's answer, for display to the reader. Present if the chat "
        "asked for marks.",
    )


@router.get(
    "/scores/{score_id}",
    summary="Get a score by its id",
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
    """Return a stored score. Every replica can return it until the retention period of the settings ends.

    By default, scores are kept for one hour, up to the latest 10,000. Only the key that created a score can
    read it.
    """
    # Ids of another form are refused here: some databases fail on characters that no id has.
    document = await app.kept.find(score_id, request.state.caller) if _ID.match(score_id) else None
    if document is None:
        raise NotFound("No score has this id, the score is no longer stored, or another key created it.")
    return {"status": "scored"} | document
