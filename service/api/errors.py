"""Errors as problem+json (RFC 9457): the table from code to HTTP status, the handlers, the log."""

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from service.api.pages import HTML, prefers, to_sign_in
from service.errors import BadKey, EigencalError, InvalidRequest, MissingKey, TooFewSamples

log = logging.getLogger(__name__)

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
MEDIA_TYPE = "application/problem+json"
OPENAI_PATHS = "/v1/"  # clients of these paths only understand errors in OpenAI's form

STATUS: dict[str, int] = {
    "invalid_request": 422,
    "invalid_dev_data": 422,
    "too_few_samples": 422,
    "bad_request": 400,
    "missing_key": 401,
    "bad_key": 401,
    "scope_required": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "internal": 500,
    "damaged_row": 500,
    "llm_error": 502,
    "llm_bad_response": 502,
    "no_usable_answers": 502,
    "overloaded": 503,
    "llm_unavailable": 503,
    "embedder_unavailable": 503,
    "store_unavailable": 503,
    "no_probability": 503,
    "deadline_exceeded": 504,
}
# Errors that Starlette and FastAPI raise themselves.
_CODE_OF_STATUS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
DEFAULT_RETRY_AFTER_S = 2.0
MAX_LISTED = 20  # errors of a body
NOT_EMPTY = r"\S"  # the contract's pattern for a text that is not empty


def log_problem(body: Mapping[str, Any], where: str, failure: BaseException | None = None) -> None:
    """Log an error response: never a caller's text, and for a caller's error only the code.

    `where`: method and route, from `route_of`. `failure`: an unexpected exception, logged with its traceback.
    """
    status = body["status"]
    line = f"{status} {body['code']}, request {body['request_id']}, {where}"
    if body["code"] == "overloaded":  # possibly thousands a second; metrics count them
        log.debug("%s", line)
    elif status < 500:
        log.info("%s", line)
    else:
        level = logging.WARNING if body["retryable"] and status != 500 else logging.ERROR
        log.log(level, "%s: %s", line, body["detail"], exc_info=failure)


def route_of(scope: Scope) -> str:
    """Return the method and the route of a request for the log. The path is omitted: it may contain a key."""
    route = scope.get("route")
    method = scope["method"] if scope["method"] in METHODS else "another method"
    return f"{method} {route.path}" if isinstance(route, Route) else f"{method} (no route)"


def problem_body(
    code: str, detail: str, *, retryable: bool, request_id: str | None, **extra: object
) -> dict[str, Any]:
    """Return the body of a problem, with `extra` as further members."""
    status = STATUS[code]
    body = {
        "type": f"urn:eigencal:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "request_id": request_id,
    }
    return body | extra


def error_body(error: EigencalError, request_id: str | None) -> dict[str, Any]:
    """Return the body for an EigencalError."""
    return problem_body(
        error.code, error.detail, retryable=error.retryable, request_id=request_id, **error.extra
    )


def openai_error(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem's body in OpenAI's form."""
    status = problem["status"]
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": problem["detail"], "type": kind, "param": None, "code": problem["code"]}
    return {"error": error}


class ProblemResponse(Response):
    """A response with a problem, in the form that clients of the path expect. Logged when sent."""

    def __init__(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        failure: BaseException | None = None,
    ) -> None:
        content = json.dumps(body).encode()  # escaped, even lone surrogates encode
        super().__init__(content, body["status"], dict(headers or {}), MEDIA_TYPE)
        self._problem, self._failure = body, failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        log_problem(self._problem, route_of(scope), self._failure)
        if scope["path"].startswith(OPENAI_PATHS):
            headers = {k: v for k, v in self.headers.items() if k not in ("content-length", "content-type")}
            content = json.dumps(openai_error(self._problem)).encode()
            response = Response(content, self.status_code, headers, "application/json")
            await response(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def error_response(error: EigencalError, request_id: str | None) -> Response:
    """Return the response for an EigencalError. A 503 always has a Retry-After header."""
    headers, retry_after = {}, error.retry_after_s
    if STATUS[error.code] == 503 and retry_after is None:
        retry_after = DEFAULT_RETRY_AFTER_S
    if retry_after is not None:
        headers["Retry-After"] = str(round(max(retry_after, 1.0)))
    if STATUS[error.code] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(error_body(error, request_id), headers)


def request_id_of(request: Request) -> str | None:
    """Return the request's id, which the middleware sets."""
    return request.scope.get("eigencal.request_id")


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


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return InvalidRequest, or TooFewSamples for a short list of samples, from pydantic's errors."""
    # Unknown fields first, since they explain why another field is missing.
    errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    # Without the input, which may contain a prompt.
    items = [
        {
            "loc": _location(error),
            "msg": _message(error),
        }
        for error in errors[:MAX_LISTED]
    ]
    few = any(item["type"] == "too_short" and item["loc"][-1:] == ("samples",) for item in errors)
    first, *inner = items[0]["loc"]
    where = ".".join(str(part) for part in (inner if first == "body" else items[0]["loc"]))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    fault = f"{items[0]['msg']}{more}"
    return (TooFewSamples if few else InvalidRequest)(f"{where}: {fault}" if where else fault, items)


def allowed_methods(app: FastAPI, scope: Scope) -> str:
    """Return the value of Allow for the path of a request. Starlette's has only the first route's methods."""

    def answers(method: str) -> bool:
        return any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.router.routes)

    return ", ".join(filter(answers, ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")))


def install(app: FastAPI) -> None:
    """Install the handlers that turn every error of the application into problem+json."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, EigencalError)
        is_refused = isinstance(error, MissingKey | BadKey)
        if is_refused and request.method == "GET" and prefers(request, HTML):
            return to_sign_in(request)
        return error_response(error, request_id_of(request))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(invalid_request(error.errors()), request_id_of(request))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODE_OF_STATUS.get(error.status_code, "bad_request")
        detail = str(error.detail)
        body = problem_body(code, detail, retryable=False, request_id=request_id_of(request))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allowed_methods(app, request.scope)
        return ProblemResponse(body, headers)

    app.add_exception_handler(EigencalError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def internal_body(request_id: str | None) -> dict[str, Any]:
    """Return the body for an unexpected error. Only the log contains its cause."""
    return problem_body(
        "internal",
        "Something went wrong in the service; its log has the details under this request id.",
        retryable=True,
        request_id=request_id,
    )
