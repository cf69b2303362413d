"""Errors as problem+json (RFC 9457) or in OpenAI's form, and their lines in the log."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Scope, Send

from service.errors import (
    BadKey,
    BadRequest,
    BodyTooLarge,
    EigencalError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    MissingKey,
    NotFound,
    TooFewSamples,
)
from service.http.pages import HTML, prefers, to_sign_in
from service.llm.weights import WeightsError

log = logging.getLogger(__name__)

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
MEDIA_TYPE = "application/problem+json"
OPENAI_PATHS = "/v1/"  # clients of these paths only understand errors in OpenAI's form
DEFAULT_RETRY_AFTER_S = 2.0  # of a 503
OPERATOR_ERRORS = (EigencalError, WeightsError, OSError)
MAX_LISTED = 20  # errors of a body
NOT_EMPTY = r"\S"  # the contract's pattern for a text that is not empty


def problem(error: EigencalError, request_id: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    body = {
        "type": f"urn:eigencal:error:{error.code}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "retryable": error.retryable,
        "request_id": request_id,
    }
    return body | error.extra


def openai_error(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem's body in OpenAI's form."""
    kind = "server_error" if body["status"] >= 500 else "invalid_request_error"
    return {"error": {"message": body["detail"], "type": kind, "param": None, "code": body["code"]}}


def report(error: Exception, request_id: str | None, where: str) -> dict[str, Any]:
    """Log an error and return its body. An unexpected error becomes InternalError; the log has its traceback.

    The log never has a caller's text, and of a caller's error only the code. where: method and route.
    """
    known = error if isinstance(error, EigencalError) else InternalError()
    body = problem(known, request_id)
    line = f"{body['status']} {body['code']}, request {body['request_id']}, {where}"
    if body["code"] == "overloaded":  # possibly thousands a second; metrics count them
        log.debug("%s", line)
    elif body["status"] < 500:
        log.info("%s", line)
    else:
        level = logging.WARNING if body["retryable"] and body["status"] != 500 else logging.ERROR
        log.log(level, "%s: %s", line, body["detail"], exc_info=None if known is error else error)
    return body


def where_of(scope: Scope) -> str:
    """Return the method and the route of a request for the log. The door sets the path before routing.

    Paths and methods of callers are left out: they may contain a key.
    """
    method = scope["method"] if scope["method"] in METHODS else "another method"
    route = scope.get("route")
    return f"{method} {route.path if isinstance(route, Route) else scope.get('eigencal.path', '(no route)')}"


async def error_response(request: Request, error: Exception) -> Response:
    """Return the response for an error, and log it. A 503 always has Retry-After."""
    if isinstance(error, MissingKey | BadKey) and request.method == "GET" and prefers(request, HTML):
        return to_sign_in(request)
    if isinstance(error, RequestValidationError):
        error = invalid_request(error.errors())
    elif isinstance(error, HTTPException):
        error = _of_starlette(request, error)
    body = report(error, request_id_of(request), where_of(request.scope))
    known = error if isinstance(error, EigencalError) else InternalError()
    headers, retry_after = dict(known.headers), known.retry_after_s
    if known.status == 503 and retry_after is None:
        retry_after = DEFAULT_RETRY_AFTER_S
    if retry_after is not None:
        headers["Retry-After"] = str(round(max(retry_after, 1.0)))
    is_openai = request.scope["path"].startswith(OPENAI_PATHS)
    content = json.dumps(openai_error(body) if is_openai else body)  # escaped: even lone surrogates encode
    return Response(content, known.status, headers, "application/json" if is_openai else MEDIA_TYPE)


HANDLERS: dict[Any, Any] = dict.fromkeys(
    (EigencalError, RequestValidationError, HTTPException), error_response
)


def startup_errors(send: Send) -> Send:
    """Return `send` that reports errors for the operator in one line if the application cannot start."""

    async def send_plainly(message: Message) -> None:
        error = sys.exc_info()[1]  # Starlette sends its traceback while it handles the error
        if message["type"] == "lifespan.startup.failed" and isinstance(error, OPERATOR_ERRORS):
            message = {**message, "message": f"Cannot start: {' '.join(str(error).split())}"}
        await send(message)

    return send_plainly


def request_id_of(request: Request) -> str | None:
    """Return the request's id, which the door sets."""
    return request.scope.get("eigencal.request_id")


def _of_starlette(request: Request, error: HTTPException) -> EigencalError:
    if error.status_code == 404:
        return NotFound(error.detail)
    if error.status_code == 405:
        # Starlette's own header has only the first route's methods.
        allowed = [method for method in METHODS if has_route({**request.scope, "method": method})]
        return MethodNotAllowed(error.detail, ", ".join(allowed))
    if error.status_code == 413:
        return BodyTooLarge(error.detail)
    if error.status_code == 400:  # FastAPI's error for a body that is not UTF-8 or nested too deeply
        return InvalidRequest("The body is not valid JSON.")
    return BadRequest(error.detail)


def has_route(scope: Scope) -> bool:
    """Return True if the application has a route for the method and path of a request."""
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].router.routes)


def refusal(error: ValidationError, *, within: Sequence[str] = ()) -> InvalidRequest:
    """Return the error with the invalid fields, without repeating the input.

    within: the path in the body of the object that was parsed.
    """
    faults = error.errors(include_url=False, include_input=False)
    return invalid_request([{**item, "loc": ("body", *within, *item["loc"])} for item in faults])


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return InvalidRequest, or TooFewSamples for a short list of samples, from pydantic's errors."""
    # Unknown fields first, since they explain why another field is missing.
    errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    # Without the input, which may contain a prompt.
    items = [{"loc": _location(error), "msg": _message(error)} for error in errors[:MAX_LISTED]]
    few = any(item["type"] == "too_short" and item["loc"][-1:] == ("samples",) for item in errors)
    first, *inner = items[0]["loc"]
    where = ".".join(str(part) for part in (inner if first == "body" else items[0]["loc"]))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    fault = f"{items[0]['msg']}{more}"
    return (TooFewSamples if few else InvalidRequest)(f"{where}: {fault}" if where else fault, items)


def _message(error: Mapping[str, Any]) -> str:
    # The cause of a JSON syntax error is in the context; the message is only "JSON decode error".
    context = error.get("ctx", {})
    fault = context.get("error")
    if error["type"] == "json_invalid" and fault:
        return f"The body is not valid JSON: {str(fault)[:200]}"
    if error["type"] == "extra_forbidden":
        return "is not a field"
    if error["type"] == "string_pattern_mismatch" and context.get("pattern") == NOT_EMPTY:
        return "It is empty or only white space"
    return str(error["msg"]).removeprefix("Value error, ")


def _location(error: Mapping[str, Any]) -> list[int | str]:
    """Return the path of a field, without pydantic's names for the members of a union."""
    parts = error["loc"]
    if error["type"] == "extra_forbidden":
        return [*parts[:-1], parts[-1][:100]]  # the name of an unknown field is the caller's
    return [part for part in parts if isinstance(part, int) or part.isidentifier()]
