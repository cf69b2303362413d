"""POST /score, POST /score/batch, and GET /scores/{id} for whoever comes later."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, parse, read_json, while_connected
from service.api.deps import Services, ServicesDep
from service.api.errors import error_body, internal_body, request_id_of
from service.api.openapi import json_body, ok, recorded, responses
from service.errors import EigencalError, InvalidRequest, NotFound, Overloaded
from service.scoring.request import BatchRequest, ScoreRequest, to_command
from service.scoring.score import HEADERS, Score

router = APIRouter(tags=["score"], dependencies=[Depends(score_scope)])
EXAMPLES = recorded("examples.json")
SCORED = {name: example["response"] | {"status": "scored"} for name, example in EXAMPLES.items()}
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
PART_CODES = ("embedder_unavailable", "store_unavailable", "overloaded", "internal")
BODY_CODES = ("invalid_request", "too_few_samples", "body_too_large", "unsupported_media_type")


async def score_one(app: Services, body: ScoreRequest, arrived: float | None) -> Score:
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
async def post_score(request: Request, app: ServicesDep) -> Response:
    """Draw answers (or take yours), embed them, and return the spectrum's largest eigenvalue and entropy.

    The values are calibrated when a calibration fits this very set-up; otherwise they are raw,
    `calibrated` is false and a warning says why. A `candidate` is judged by the answers; a `target_error`
    asks whether to let it, or without one the `answer`, through.
    """
    body = await read_json(request, ScoreRequest)
    score = await while_connected(request, score_one(app, body, request.scope.get("eigencal.arrived")))
    if score is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    content = score.json_text(body.return_)
    app.kept.keep(score.id, owner_of(request), content)
    return Response(content, headers=score.headers(), media_type="application/json")


@router.post(
    "/score/batch",
    summary="Score up to 256 prompts",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A line for each item as it is done: `{index, result}` or `{index, error}`.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
        **responses(*BODY_CODES, *KEY_CODES, "internal"),
    },
    openapi_extra={**json_body("BatchRequest"), **BEARER},
)
async def post_batch(request: Request, app: ServicesDep) -> StreamingResponse:
    """Score many prompts; lines come in the order in which they are done, and a bad item fails no other."""
    body = await read_batch(request)
    lines = batch_lines(app, body.items, request_id_of(request), owner_of(request))
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def read_batch(request: Request) -> BatchRequest:
    """Return the body, raises as `read_json`; half a surrogate pair within an item is the item's fault."""
    try:
        return await read_json(request, BatchRequest)
    except InvalidRequest:
        try:
            return BatchRequest.model_validate(json.loads((await request.body()).decode()))
        except (ValueError, RecursionError):
            pass
        raise


async def batch_lines(
    app: Services, items: list[Any], request_id: str | None, owner: str = ""
) -> AsyncIterator[bytes]:
    """Yield a line as each item is done, and keep it. Closing the iterator cancels what is under way."""
    slots = asyncio.Semaphore(app.batch_concurrency)

    async def line(index: int, item: object) -> bytes:
        async with slots:
            return await batch_line(app, index, item, request_id, owner)

    tasks = [asyncio.ensure_future(line(index, item)) for index, item in enumerate(items)]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        # Shielded: a hang-up cancels this again and again, which must not disturb what the tasks clean up.
        await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))


async def score_in_turn(app: Services, body: ScoreRequest) -> Score:
    """Score an item of a batch, which waits where a single request would be refused for want of room.

    Raises Overloaded when there was none until the item's deadline, or for `BATCH_PATIENCE_S`.
    """
    patience_s = BATCH_PATIENCE_S if body.deadline_ms is None else body.deadline_ms / 1000
    began = time.perf_counter()  # the wait counts in the item's deadline
    while True:
        try:
            return await score_one(app, body, began)
        except Overloaded as error:
            wait_s = error.retry_after_s or 1.0
            if time.perf_counter() - began + wait_s > patience_s:
                raise
        # Not all at the same moment, or they would keep each other out.
        await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))


async def batch_line(app: Services, index: int, item: object, request_id: str | None, owner: str) -> bytes:
    """Return the line of one item; no error leaves it."""
    try:
        # Through bytes: an item is held to exactly the rules of a body of its own.
        body = parse(json.dumps(item).encode(), ScoreRequest)
        score = await score_in_turn(app, body)
        content = score.json_text(body.return_)
        app.kept.keep(score.id, owner, content)
        return b'{"index":%d,"result":%s}\n' % (index, content.encode())
    except EigencalError as error:
        problem = error_body(error, request_id)
        app.errors.note(problem, f"POST /score/batch, item {index}")
    except Exception as error:
        problem = internal_body(request_id)
        app.errors.note(problem, f"POST /score/batch, item {index}", error)
    return json.dumps({"index": index, "error": problem}).encode() + b"\n"


class KeptScore(BaseModel):
    """A score as it was answered, and how far it is; further fields as of POST /score or of the answer."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Id of this score.")
    status: Literal["pending", "scored", "not_scored", "failed"] = Field(
        description="pending: ask again. scored: with everything that POST /score returned. not_scored, "
        "failed: `warning` says why."
    )


@router.get(
    "/scores/{score_id}",
    summary="A score by its id",
    responses={
        200: ok(
            KeptScore, {"pending": {"id": "scr_01K9ZD3QW40000000000000000", "status": "pending"}} | SCORED
        ),
        **responses("not_found", *KEY_CODES, "store_unavailable", "internal"),
    },
    response_model=None,
    openapi_extra=BEARER,
)
async def get_score(
    request: Request, app: ServicesDep, score_id: Annotated[str, Path(description="Id of a score.")]
) -> dict[str, Any]:
    """Return what was answered under this id, from any replica, for as long as the settings keep it.

    An hour unless set otherwise, and the latest 10,000. Made under another key, it is not found.
    """
    # Refused by its form: a database may choke on characters that no id has.
    document = await app.kept.find(score_id, owner_of(request)) if _ID.match(score_id) else None
    if document is None:
        raise NotFound("No score has this id, it is no longer kept, or it was made under another key.")
    return {"status": "scored"} | document
