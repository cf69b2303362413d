"""Bodies of requests and streams of responses, and work that ends when its caller disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.errors import invalid_request
from service.errors import InvalidRequest, UnsupportedMediaType
from service.llm.sse import MAX_VALUES, is_heavy

T = TypeVar("T")
CLIENT_CLOSED_REQUEST = 499
MAX_FIELDS = 200


class RequestModel(BaseModel):
    """Base of request bodies: strict types, no unknown fields, no NaN, no null (leave the field out)."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema without nulls: None means a field that is left out, and is never on the wire."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, field in schema.get("properties", {}).items():
            kinds = [kind for kind in field.pop("anyOf", ()) if kind != {"type": "null"}]
            if field.get("default", "") is None:
                del field["default"]
            more = {"anyOf": kinds} if len(kinds) > 1 else next(iter(kinds), {})
            schema["properties"][name] = {**field, **more}
        schema["additionalProperties"] = False
        return schema

    @model_validator(mode="before")
    @classmethod
    def of_few_fields(cls, value: object) -> object:
        """Refuse an object with far more fields than there are: pydantic would describe each one."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"has more than {MAX_FIELDS} fields")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def as_json_means_it(cls, value: object) -> object:
        """Refuse null (leave the field out instead); convert 14.0 to 14, as in JSON Schema."""
        if value is None:
            raise ValueError("must not be null; leave the field out")
        return int(value) if isinstance(value, float) and value.is_integer() else value


BAD_BODY = ("invalid_request", "body_too_large", "unsupported_media_type")


def guarded(*guards: Callable[[Request], Awaitable[None]]) -> type[APIRoute]:
    """Return a class of routes that call the guards before FastAPI reads the body.

    A body must be JSON and must not be heavy (`refuse_heavy`).
    """

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_guarded(request: Request) -> Response:
                for guard in guards:
                    await guard(request)
                if self.body_field is None:
                    return await handle(request)
                require_json(request)
                refuse_heavy(await request.body())
                try:
                    return await handle(request)
                except HTTPException as error:
                    if error.status_code != HTTPStatus.BAD_REQUEST:
                        raise
                    # FastAPI raises this for a body that is not UTF-8 or nested too deeply.
                    raise InvalidRequest("The body is not valid JSON.") from None

            return handle_guarded

    return GuardedRoute


def require_json(request: Request) -> None:
    """Raise UnsupportedMediaType unless the Content-Type is JSON.

    A page of another origin can make a browser post a body without a type or of plain text, but not JSON.
    """
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("Send JSON with Content-Type: application/json.")


def refuse_heavy(body: bytes) -> None:
    """Raise InvalidRequest for a body that would take too long to parse."""
    if is_heavy(body):
        msg = f"holds more than {MAX_VALUES} values"
        raise InvalidRequest(f"The body {msg}.", [{"loc": ["body"], "msg": msg}])


def refusal(error: ValidationError, *, within: Sequence[str] = ()) -> InvalidRequest:
    """Return the error with the invalid fields, without repeating the input.

    within: the path in the body of the object that was parsed.
    """
    faults = error.errors(include_url=False, include_input=False)
    return invalid_request([{**item, "loc": ("body", *within, *item["loc"])} for item in faults])


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`. If the caller disconnects, cancel `work` and return None.

    Without this a handler would continue after its caller has gone, and keep the LLM busy for nobody.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            # Wait until it has released the LLM. Its outcome is ignored, since the caller has gone.
            await asyncio.gather(task, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class StreamingBody(Response):
    """Sends pieces as they arrive, until the last one or a disconnect, and then closes `ending`."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncGenerator[bytes, None],
        ending: AsyncExitStack,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        async with self._ending:
            await while_connected(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._pieces):
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
