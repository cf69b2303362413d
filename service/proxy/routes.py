"""The routes under /v1 for clients of OpenAI's API: chats, responses, models."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from service.http.openapi import BEARER
from service.llm.forward import read_ahead
from service.llm.sse import too_long
from service.proxy.answer import Answer
from service.proxy.call import headers_of, read_call
from service.proxy.chat import Chat
from service.proxy.responses import ResponseAnswer

LOOSE: dict[str, Any] = {"type": "object", "additionalProperties": True}
ANSWER = (
    "The LLM server's response, with the field `uncertainty`: `{id, status}` and the fields of a score, or "
    "a `warning` {code, message} that gives the reason for a missing score. In streams, the field is in the "
    "chunk that finishes the answer, at the top level and in `delta`, or in the `response` of "
    "`response.completed` or `response.incomplete`. The header `X-Score-ID` is the "
    "score's id for GET /scores/{id}."
)
ASKED = (
    "The LLM server's request, with the optional field `eigencal`: {num_samples, target_error, "
    "confidence, calibration, claims, mark, abstain}. Header `X-Eigencal`: `off`, `async` or `on`."
)
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {**LOOSE, "description": ASKED}}},
    },
    **BEARER,
}


def _described(note: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of a route that answers in the LLM server's format."""
    error = "Error of the LLM server or of the service: `{error: {message, type, param, code}}`."
    json_ = {"application/json": {"schema": LOOSE}}
    return {200: {"description": note, "content": json_}, "default": {"description": error, "content": json_}}


async def chat_of(request: Request) -> Chat:
    """Return the application's drop-in."""
    chat: Chat = request.app.state.chat
    return chat


ChatDep = Annotated[Chat, Depends(chat_of)]
router = APIRouter(prefix="/v1", tags=["drop-in"])


@router.post("/chat/completions", responses=_described(ANSWER), openapi_extra=BODY)
async def chat_completions(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's answer to a chat, with its uncertainty."""
    return await chat.complete(await read_call(request, Answer(), chat.mode, abstains=chat.abstain))


@router.post("/responses", responses=_described(ANSWER), openapi_extra=BODY)
async def responses(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's response, with its uncertainty."""
    return await chat.complete(await read_call(request, ResponseAnswer(), chat.mode, abstains=chat.abstain))


@router.get("/models", responses=_described("The LLM server's list of models."), openapi_extra=BEARER)
async def models(request: Request, chat: ChatDep) -> Response:
    """List the models of the LLM server."""
    async with chat.llm.forward("/models", None, headers=headers_of(request)) as reply:
        content, is_whole = await read_ahead(reply.pieces())
    if not is_whole:
        raise too_long()
    return Response(content, reply.status, reply.headers)
