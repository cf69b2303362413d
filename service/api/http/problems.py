"""problem+json (RFC 9457): the one table from error code to HTTP status, and the handlers that use it."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.http.error_log import ErrorLog
from service.api.http.negotiation import allowed_methods
from service.domain.errors import EigencalError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

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
    "request_timeout": 408,
    "conflict": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "header_too_large": 431,
    "internal": 500,
    "llm_error": 502,
    "llm_bad_response": 502,
    "overloaded": 503,
    "llm_unavailable": 503,
    "embedder_unavailable": 503,
    "store_unavailable": 503,
    "deadline_exceeded": 504,
}
_CODE_OF_STATUS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
DEFAULT_RETRY_AFTER_S = 2.0
LONGEST_RETRY_AFTER_S = 3600.0  # whatever another server asked for


class ProblemItem(BaseModel):
    """One thing that is wrong with the request."""

    model_config = ConfigDict(extra="allow")

    loc: list[str | int] = Field(description="Where: body, query or path, then the field.")
    msg: str = Field(description="What is wrong there.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Names the kind of error; the same for every error of one code.")
    title: str = Field(description="The HTTP status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong, for a person.")
    code: str = Field(description="What went wrong, for a program: stable.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str | None = Field(None, description="The request's id, also in X-Request-ID.")
    errors: list[ProblemItem] | None = Field(None, description="For invalid requests: each thing wrong.")


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


class ProblemResponse(Response):
    """A problem on its way out; the application's log of errors is told when it is sent."""

    def __init__(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        failure: BaseException | None = None,
    ) -> None:
        content = json.dumps(body, ensure_ascii=True).encode()
        super().__init__(content, body["status"], dict(headers or {}), MEDIA_TYPE)
        self._problem, self._failure = body, failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if (app := scope.get("app")) is not None:
            app.state.errors.note(self._problem, f"{scope['method']} {scope['path']}", self._failure)
        await super().__call__(scope, receive, send)


def problem_response(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem as a response."""
    return ProblemResponse(body, headers)


def error_response(error: EigencalError, request_id: str | None) -> Response:
    """Return an error of ours as a response; 503 always says when to come back."""
    headers = {}
    retry_after = error.retry_after_s
    if retry_after is not None and not math.isfinite(retry_after):
        retry_after = None
    if STATUS[error.code] == 503 and retry_after is None:
        retry_after = DEFAULT_RETRY_AFTER_S
    if retry_after is not None:
        headers["Retry-After"] = str(round(min(max(retry_after, 1.0), LONGEST_RETRY_AFTER_S)))
    if STATUS[error.code] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return problem_response(error_body(error, request_id), headers)


def request_id_of(request: Request) -> str | None:
    """Return the id that the middleware gave the request."""
    return request.scope.get("eigencal.request_id")


def validation_items(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return pydantic's errors as `{loc, msg}`: never the input, which may hold a prompt."""
    return [{"loc": [part if isinstance(part, int) else _clean(part) for part in error["loc"]],
             "msg": _message(error)} for error in errors[:20]]  # fmt: skip


def _clean(part: object) -> str:
    """Return a part of a location fit for a header-safe JSON body: a field name may come from the caller."""
    return str(part)[:100].encode("utf-8", "replace").decode()


def _message(error: Mapping[str, Any]) -> str:
    # A JSON syntax error keeps what is wrong in the context; the message alone says only "JSON decode error".
    said = error.get("ctx", {}).get("error")
    if error["type"] == "json_invalid" and said:
        return f"The body is not valid JSON: {str(said)[:200]}"
    return str(error["msg"]).removeprefix("Value error, ")


def invalid_request_body(errors: Sequence[Mapping[str, Any]], request_id: str | None) -> dict[str, Any]:
    """Return the body for a request that does not fit the schema."""
    items = validation_items(errors)
    first = items[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    detail = f"{where}: {first['msg']}{more}"
    return problem_body("invalid_request", detail, retryable=False, request_id=request_id, errors=items)


def install(app: FastAPI, errors: ErrorLog | None = None) -> None:
    """Let every error of the application answer as problem+json, and be told to the log of errors."""
    app.state.errors = errors or ErrorLog()

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, EigencalError)
        return error_response(error, request_id_of(request))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem_response(invalid_request_body(error.errors(), request_id_of(request)))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODE_OF_STATUS.get(error.status_code, "bad_request")
        detail = str(error.detail)
        body = problem_body(code, detail, retryable=False, request_id=request_id_of(request))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allowed_methods(app, request.scope)
        return problem_response(body, headers)

    app.add_exception_handler(EigencalError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def internal_problem(request_id: str | None, failure: BaseException | None = None) -> Response:
    """Return the answer to an error that nobody foresaw: the log alone tells the cause."""
    return ProblemResponse(internal_body(request_id), failure=failure)


def internal_body(request_id: str | None) -> dict[str, Any]:
    """Return the body for an error that nobody foresaw."""
    return problem_body(
        "internal",
        "Something went wrong in the service; its log has the details under this request id.",
        retryable=True,
        request_id=request_id,
    )


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries for error codes, one per status, each with an example of every code."""
    entries: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status = STATUS[code]
        entry = entries.setdefault(
            status, {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"examples": {}}}}
        )
        entry["content"][MEDIA_TYPE]["schema"] = {"$ref": "#/components/schemas/Problem"}
        entry["content"][MEDIA_TYPE]["examples"][code] = {"value": EXAMPLES[code]}
    return entries


def _example(code: str, detail: str, *, retryable: bool = False, **extra: object) -> dict[str, Any]:
    return problem_body(code, detail, retryable=retryable, request_id="req_01K9ZD3QW4", **extra)


EXAMPLES: dict[str, dict[str, Any]] = {
    example["code"]: example
    for example in (
        _example(
            "invalid_request",
            "num_samples: Input should be greater than or equal to 2",
            errors=[
                {"loc": ["body", "num_samples"], "msg": "Input should be greater than or equal to 2"},
            ],
        ),
        _example("bad_request", "There was an error parsing the body"),
        _example("too_few_samples", "At least two samples are needed."),
        _example(
            "invalid_dev_data",
            "2 of 60 rows cannot be used.",
            errors=[
                {"loc": ["line", 7], "line": 7, "field": "reference", "reason": "missing", "msg": "missing"},
            ],
            total_bad=2,
        ),
        _example("missing_key", "This route needs a bearer key."),
        _example("bad_key", "The bearer key is not valid."),
        _example("scope_required", "With no admin key set, this route answers on loopback only."),
        _example("not_found", "No calibration has the id given in `calibration`."),
        _example("model_not_found", "The LLM server does not serve the model asked for."),
        _example("method_not_allowed", "Method Not Allowed"),
        _example("conflict", "This Idempotency-Key was used with another file or other options."),
        _example("body_too_large", "The body is larger than 8388608 bytes."),
        _example("unsupported_media_type", "Send JSON or multipart/form-data."),
        _example("request_timeout", "The request did not come in time."),
        _example("header_too_large", "Path and headers are larger than 65536 bytes."),
        _example("internal", "Something went wrong in the service.", retryable=True),
        _example(
            "llm_error",
            "The LLM server answered with status 400.",
            llm_status=400,
            llm_message="max_tokens is too large",
        ),
        _example("llm_bad_response", "The LLM server's answer is no completion.", retryable=True),
        _example("overloaded", "Too many requests are waiting.", retryable=True),
        _example("llm_unavailable", "The LLM server cannot be reached.", retryable=True),
        _example("embedder_unavailable", "The embedder cannot embed now.", retryable=True),
        _example("store_unavailable", "The store cannot be reached.", retryable=True),
        _example("deadline_exceeded", "Only 1 of 20 answers came before the deadline.", retryable=True),
    )
}
