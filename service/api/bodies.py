"""JSON bodies parsed directly into models, and work and streams that end when their caller disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.errors import MAX_LISTED, invalid_request
from service.errors import InvalidRequest, UnsupportedMediaType
from service.field_names import describe_unknown
from service.heavy_json import MAX_FAULTS, MAX_VALUES, is_heavy

Body = TypeVar("Body", bound=BaseModel)
T = TypeVar("T")
CLIENT_CLOSED_REQUEST = 499
REF = "#/components/schemas/{model}"


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

    @field_validator("*", mode="before")
    @classmethod
    def as_json_means_it(cls, value: object) -> object:
        """Refuse null (leave the field out instead); convert 14.0 to 14, as in JSON Schema."""
        if value is None:
            raise ValueError("must not be null; leave the field out")
        return int(value) if isinstance(value, float) and value.is_integer() else value


BAD_BODY = ("invalid_request", "body_too_large", "unsupported_media_type")


class JsonBody(Generic[Body]):
    """A dependency that parses the JSON body as a model.

    Raises UnsupportedMediaType, InvalidRequest and BodyTooLarge. FastAPI would read the body before it checks
    the key, and its errors would repeat the input. `JsonRoute` puts the model into the OpenAPI document.
    examples: requests by name, for that document.
    """

    def __init__(
        self,
        model: type[Body],
        examples: Mapping[str, Any] | None = None,
        *,
        max_values: int = MAX_VALUES,
    ) -> None:
        self.model, self.max_values = model, max_values
        self._examples = {name: {"value": value} for name, value in (examples or {}).items()}

    async def __call__(self, request: Request) -> Body:
        """Return the parsed body."""
        require_json(request)
        return parse(await request.body(), self.model, self.max_values)

    def described(self) -> dict[str, Any]:
        """Return the OpenAPI entry of the body."""
        content: dict[str, Any] = {"schema": {"$ref": REF.format(model=self.model.__name__)}}
        if self._examples:
            content["examples"] = self._examples
        return {"required": True, "content": {"application/json": content}}


class JsonRoute(APIRoute):
    """A route that documents its `JsonBody`, if it has one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        bodies = [part.call for part in self.dependant.dependencies if isinstance(part.call, JsonBody)]
        self.json_body: JsonBody[Any] | None = bodies[0] if bodies else None
        if self.json_body is not None:
            self.openapi_extra = {**(self.openapi_extra or {}), "requestBody": self.json_body.described()}


def require_json(request: Request) -> None:
    """Raise UnsupportedMediaType unless the Content-Type is JSON.

    A page of another origin can make a browser post a body without a type or of plain text, but not JSON.
    """
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("Send JSON with Content-Type: application/json.")


def parse(body: bytes, model: type[Body], max_values: int = MAX_VALUES) -> Body:
    """Parse JSON bytes as a model. Raises InvalidRequest (TooFewSamples for a list of too few samples)."""
    refuse_heavy(body, max_values)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error, model) from None


def refuse_heavy(body: bytes, max_values: int = MAX_VALUES) -> None:
    """Raise InvalidRequest for a body that would take too long to parse."""
    if is_heavy(body, max_values):
        msg = f"holds more than {max_values} values"
        raise InvalidRequest(f"The body {msg}.", [{"loc": ["body"], "msg": msg}])


def refusal(error: ValidationError, model: type[BaseModel], *, within: Sequence[str] = ()) -> InvalidRequest:
    """Return the error with the invalid fields for the caller, without repeating the input.

    model: the model of the parsed object. within: the path of the object in the body.
    """
    if error.error_count() > MAX_FAULTS:
        msg = f"has {error.error_count()} faults, too many to list"
        return InvalidRequest(f"The body {msg}.", [{"loc": ["body"], "msg": msg}])
    # Unknown fields first, since they explain why another field is missing.
    faults = error.errors(include_url=False, include_input=False)
    faults.sort(key=lambda item: item["type"] != "extra_forbidden")
    for item in faults[:MAX_LISTED]:
        if item["type"] == "extra_forbidden":
            item["msg"] = describe_unknown(model, item["loc"])
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
