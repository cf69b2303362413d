"""The log of errors answered: a line each with the request's id; of many at once, a few and their number.

A line never holds a caller's text: an error of the caller's making is named by its code alone, one of the
service or the LLM by the sentence that the caller got, which holds no prompt and no key.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from service.errors import EigencalError, InvalidRequest, TooFewSamples

log = logging.getLogger(__name__)

LINES = 5
WINDOW_S = 10.0
MAX_PATH_CHARS = 200


@dataclass(slots=True)
class _Window:
    """The errors of one code since the first of them was logged."""

    level: int
    seen: int
    end: asyncio.TimerHandle


class ErrorLog:
    """Logs errors as they are answered: at most `lines` of one code in `window_s`, then how many more came.

    Errors of the caller (4xx) at info, those that may pass (503, 504, ...) at warning, others at error.
    """

    def __init__(self, *, lines: int = LINES, window_s: float = WINDOW_S) -> None:
        self._lines, self._window_s = lines, window_s
        self._open: dict[str, _Window] = {}

    async def stop(self) -> None:
        """Tell the counts that are still open; idempotent."""
        for code in list(self._open):
            self._close(code)

    def note(self, body: Mapping[str, Any], where: str, failure: BaseException | None = None) -> None:
        """Log a problem's body as it is answered. Needs a running event loop.

        `where`: method and path of the request. `failure`: an unexpected exception, told with its traceback.
        """
        level = level_of(body)
        if not log.isEnabledFor(level):
            return
        # By code, of which there are few: by path or caller, a flood could open windows without end.
        code = body["code"]
        if code not in self._open:
            end = asyncio.get_running_loop().call_later(self._window_s, self._close, code)
            self._open[code] = _Window(level, 0, end)
        window = self._open[code]
        window.seen += 1
        if window.seen <= self._lines:
            log.log(level, "%s", line(body, where), exc_info=failure)

    def _close(self, code: str) -> None:
        window = self._open.pop(code)
        window.end.cancel()
        more = window.seen - self._lines
        if more > 0:
            log.log(window.level, "%s: %d more within %g s", code, more, self._window_s)


def level_of(body: Mapping[str, Any]) -> int:
    """Return the level of the log at which a problem is told."""
    status = body["status"]
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return logging.INFO
    passing = body["retryable"] and status != HTTPStatus.INTERNAL_SERVER_ERROR
    return logging.WARNING if passing else logging.ERROR


def line(body: Mapping[str, Any], where: str) -> str:
    """Return a problem as a line of the log."""
    shown = repr(where)[1:-1][:MAX_PATH_CHARS]  # as escaped: a path may hold anything, line feeds included
    text = f"{body['status']} {body['code']}, request {body['request_id']}, {shown}"
    if body["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        text += f": {body['detail']}"
    return text


# problem+json (RFC 9457): the one table from error code to HTTP status, and the handlers that use it.

MEDIA_TYPE = "application/problem+json"
OPENAI_PATHS = "/v1/"  # whose clients know errors in OpenAI's shape alone

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
# What Starlette and FastAPI raise by themselves.
_CODE_OF_STATUS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
DEFAULT_RETRY_AFTER_S = 2.0
NOT_EMPTY = r"\S"  # the pattern by which the contract says so
LONGEST_RETRY_AFTER_S = 3600.0  # whatever another server asked for


def problem_body(
    code: str, detail: str, *, retryable: bool, request_id: str | None, **extra: object
) -> dict[str, Any]:
    """Return the body of a problem; `extra` become further members."""
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
    """Return the body for an error of ours."""
    return problem_body(
        error.code, error.detail, retryable=error.retryable, request_id=request_id, **error.extra
    )


def openai_error(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem's body as clients of OpenAI's API expect one."""
    status = problem["status"]
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": problem["detail"], "type": kind, "param": None, "code": problem["code"]}
    return {"error": error}


class ProblemResponse(Response):
    """A problem on its way out, in the shape of the path's clients.

    The application's log of errors is told when it is sent.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        failure: BaseException | None = None,
    ) -> None:
        content = json.dumps(body, ensure_ascii=True).encode()  # escaped, even lone surrogates encode
        super().__init__(content, body["status"], dict(headers or {}), MEDIA_TYPE)
        self._problem, self._failure = body, failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if (app := scope.get("app")) is not None:
            app.state.errors.note(self._problem, f"{scope['method']} {scope['path']}", self._failure)
        if scope["path"].startswith(OPENAI_PATHS):
            await self._in_openai_shape()(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _in_openai_shape(self) -> Response:
        headers = {k: v for k, v in self.headers.items() if k not in ("content-length", "content-type")}
        content = json.dumps(openai_error(self._problem)).encode()
        return Response(content, self.status_code, headers, "application/json")


def error_response(error: EigencalError, request_id: str | None) -> Response:
    """Return an error of ours as a response; 503 always says when to come back."""
    headers = {}
    retry_after = error.retry_after_s
    # The number may come from another server's header.
    if retry_after is not None and not math.isfinite(retry_after):
        retry_after = None
    if STATUS[error.code] == 503 and retry_after is None:
        retry_after = DEFAULT_RETRY_AFTER_S
    if retry_after is not None:
        headers["Retry-After"] = str(round(min(max(retry_after, 1.0), LONGEST_RETRY_AFTER_S)))
    if STATUS[error.code] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(error_body(error, request_id), headers)


def request_id_of(request: Request) -> str | None:
    """Return the id that the middleware gave the request."""
    return request.scope.get("eigencal.request_id")


def _clean(part: object) -> str:
    """Return a part of a location fit for a header-safe JSON body: a field name may come from the caller."""
    return str(part)[:100].encode("utf-8", "replace").decode()


def _message(error: Mapping[str, Any]) -> str:
    # A JSON syntax error keeps what is wrong in the context; the message alone says only "JSON decode error".
    context = error.get("ctx", {})
    fault = context.get("error")
    if error["type"] == "json_invalid" and fault:
        return f"The body is not valid JSON: {str(fault)[:200]}"
    if error["type"] == "string_pattern_mismatch" and context.get("pattern") == NOT_EMPTY:
        return "It is empty, or white space alone"
    return str(error["msg"]).removeprefix("Value error, ")


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return the error for what does not fit the schema, from pydantic's errors: at least one.

    TooFewSamples where it is a list of samples that is too short.
    """
    # Never the input, which may hold a prompt.
    items = [
        {
            "loc": [part if isinstance(part, int) else _clean(part) for part in error["loc"]],
            "msg": _message(error),
        }
        for error in errors[:20]
    ]
    few = any(item["type"] == "too_short" and item["loc"][-1:] == ("samples",) for item in errors)
    first, *inner = items[0]["loc"]
    where = ".".join(str(part) for part in (inner if first == "body" else items[0]["loc"]))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    fault = f"{items[0]['msg']}{more}"
    return (TooFewSamples if few else InvalidRequest)(f"{where}: {fault}" if where else fault, items)


# Starlette's 405 names the methods of the first route alone.
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def allowed_methods(app: FastAPI, scope: Scope) -> str:
    """Return the value of Allow for the path of a request."""

    def answers(method: str) -> bool:
        asked = {**scope, "method": method}
        return any(route.matches(asked)[0] is Match.FULL for route in app.router.routes)

    return ", ".join(filter(answers, METHODS))


def install(app: FastAPI, errors: ErrorLog | None = None) -> None:
    """Let every error of the application answer as problem+json, and be told to the log of errors."""
    app.state.errors = errors or ErrorLog()

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, EigencalError)
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
    """Return the body for an unexpected error; only the log tells its cause."""
    return problem_body(
        "internal",
        "Something went wrong in the service; its log has the details under this request id.",
        retryable=True,
        request_id=request_id,
    )
