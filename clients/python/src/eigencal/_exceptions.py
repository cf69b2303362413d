"""The exceptions of the client, and the conversion of responses to exceptions.

EigencalError
├── InvalidSetupError           the URL, the key or an argument is invalid; nothing was sent
├── APIConnectionError          the service did not answer, or the connection broke
│   └── APITimeoutError         the service did not answer in time
├── UnexpectedResponseError     the response does not follow the contract (a page, another service)
├── JobEndedError               a job failed or was cancelled while the client waited for it
└── APIStatusError              the service, or a proxy, answered with an error
    ├── BadRequestError             400
    ├── AuthenticationError         401
    ├── PermissionDeniedError       403
    ├── NotFoundError               404
    ├── ConflictError               409
    ├── UnprocessableEntityError    422
    ├── RateLimitError              429
    └── ServerError                 5xx
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx2

MAX_QUOTED_CHARS = 200  # of an error body that is not a problem document
# Without an error code of the service, these come from another server, not from a proxy of the service.
_FOREIGN_STATUSES = {404, 405}


class EigencalError(Exception):
    """Base class of all errors of the client. `str(error)` is one line, without keys and prompts.

    Attributes:
        code: Stable error code, for programs.
        detail: Explanation, for people.
        status: HTTP status; None without a response.
        request_id: Id of the request in the service's log.
        retryable: Whether the same call may succeed later.
        retry_after_s: Seconds to wait before the next try, if the service gave them.
        problem: Body of the error (RFC 9457); empty if the body is not a problem document.
    """

    code = "error"
    retryable = False

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retryable: bool | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.status = status
        self.retryable = type(self).retryable if retryable is None else retryable
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.problem = dict(problem or {})

    @property
    def errors(self) -> tuple[dict[str, Any], ...]:
        """The individual errors of the request: `{"loc": [...], "msg": ...}`, with the line for dev data."""
        # A proxy's JSON may hold any type under this name.
        entries = self.problem.get("errors")
        return tuple(item for item in entries if isinstance(item, dict)) if isinstance(entries, list) else ()


class InvalidSetupError(EigencalError):
    """The URL, the key or an argument is invalid; nothing was sent."""

    code = "invalid_setup"


class APIConnectionError(EigencalError):
    """The service did not answer.

    `code` is `connection_failed` if nothing was sent, and `connection_lost` if the connection broke: then
    the service may or may not have acted on the call.
    """

    code = "connection_lost"
    retryable = True


class APITimeoutError(APIConnectionError):
    """The service did not answer in time. It may still be working on the call."""

    code = "timed_out"


class UnexpectedResponseError(EigencalError):
    """The response does not follow the contract: a page, another service, another major version."""

    code = "unexpected_response"


class JobEndedError(EigencalError):
    """A job failed or was cancelled while the client waited for it.

    `code` is `job_cancelled`, or the error code of the failed job. `Client.retry` resumes a failed job.
    """

    code = "job_failed"


class APIStatusError(EigencalError):
    """The service, or a proxy, answered with an error."""

    code = "http_error"

    def __str__(self) -> str:
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.detail}{request}"


class BadRequestError(APIStatusError):
    """The request cannot be read (400)."""


class AuthenticationError(APIStatusError):
    """The key is missing or wrong (401): pass `key`, or set EIGENCAL_KEY."""


class PermissionDeniedError(APIStatusError):
    """The caller may not do this (403), with its key or because no key is set."""


class NotFoundError(APIStatusError):
    """The resource does not exist (404)."""


class ConflictError(APIStatusError):
    """The request conflicts with the current state (409), for example a job that has ended."""


class UnprocessableEntityError(APIStatusError):
    """The request does not fit the contract (422); `errors` lists what is wrong."""


class RateLimitError(APIStatusError):
    """Too many requests (429)."""


class ServerError(APIStatusError):
    """The service or one of its back ends failed or is overloaded (5xx).

    `code` gives the cause: `overloaded`, `llm_unavailable`, `deadline_exceeded`, `no_probability` ...
    """


_BY_STATUS = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: UnprocessableEntityError,
    429: RateLimitError,
}


def error_of_problem(
    status: int,
    problem: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    fallback: str = "The error has no detail.",
) -> APIStatusError:
    """Return the exception for a problem document or an error in OpenAI's format; fields may be malformed."""
    inner = problem.get("error")
    body = {"detail": inner.get("message"), "code": inner.get("code")} if isinstance(inner, dict) else problem
    detail, code, request_id = (
        value if isinstance(value := body.get(name), str) else None
        for name in ("detail", "code", "request_id")
    )
    headers, retryable = headers or {}, body.get("retryable")
    retry_after = headers.get("retry-after", "")
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else APIStatusError)
    return kind(
        detail or fallback,
        status=status,
        code=code,
        # Proxies send no `retryable`; 429 and 503 mean "later" from any server.
        retryable=retryable if isinstance(retryable, bool) else status in (429, 503),
        request_id=request_id or headers.get("x-request-id"),
        retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
        problem=problem,
    )


def error_of_response(response: httpx2.Response, content: bytes) -> EigencalError:
    """Return the exception for an error response with the body `content`."""
    try:
        problem = json.loads(content)
    except (ValueError, RecursionError):
        problem = None
    # A body that is not a problem document, such as a proxy's page, is quoted.
    kind = response.headers.get("content-type", "no media type")
    page = " ".join(content.decode("utf-8", "replace").split())[:MAX_QUOTED_CHARS]
    where = f"{response.request.method} {response.request.url.copy_with(query=None, userinfo=b'')}"
    quoted = f"{where} was answered {response.status_code} with {kind}: {page}"
    members = problem if isinstance(problem, dict) else {}
    error = error_of_problem(response.status_code, members, response.headers, quoted)
    if error.code == APIStatusError.code and error.status in _FOREIGN_STATUSES:
        return UnexpectedResponseError(
            f"This is not an Eigencal service: {quoted}", status=error.status, request_id=error.request_id
        )
    return error


def error_of_transport(failure: Exception, request: httpx2.Request) -> EigencalError:
    """Return the exception for a request without a readable response."""
    where = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    why = str(failure) or type(failure).__name__  # many have no message
    if isinstance(failure, httpx2.LocalProtocolError):
        return InvalidSetupError(f"The request cannot be sent: {why}")
    if isinstance(failure, httpx2.DecodingError):
        return UnexpectedResponseError(f"The answer of {where} cannot be read: {why}")
    if isinstance(
        failure, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError
    ):
        return APIConnectionError(f"There is no connection to {where}: {why}", code="connection_failed")
    if isinstance(failure, httpx2.TimeoutException | TimeoutError):
        return APITimeoutError(f"{where} did not answer in time to {request.method} {request.url.path}.")
    return APIConnectionError(f"The connection to {where} broke off: {why}")
