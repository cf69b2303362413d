"""The errors that a caller of the service may see, and how an answer becomes one.

EigencalError
├── InvalidSetupError           the client is set up wrongly (URL, key), or was given what it cannot send
├── APIConnectionError          the service did not answer, or its answer broke off
│   └── APITimeoutError         not in the time given
├── UnexpectedResponseError     what answered does not speak this contract (a page, another service)
├── JobEndedError               a job that was waited for failed or was cancelled
└── APIStatusError              the service, or a server before it, answered with an error
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

MAX_QUOTED_CHARS = 200  # of a body that is no problem
# Without a code of the service these come from another server, and from none that stands before the service.
_FOREIGN_STATUSES = {404, 405}


class EigencalError(Exception):
    """Base of every error of this client; `str(error)` is one line for a person, without keys and prompts.

    Attributes:
        code: What went wrong, for a program: stable.
        detail: What went wrong, for a person.
        status: HTTP status; None where no answer came.
        request_id: Id of the request, as the service's log has it.
        retryable: Whether the same call may succeed later.
        retry_after_s: Seconds after which to try again, where the service said so.
        problem: The whole body of the error (RFC 9457); empty where it was none.
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
        """Each thing wrong with the request: `{"loc": [...], "msg": ...}`, of dev data with the line."""
        # A proxy's JSON may have anything under this name.
        listed = self.problem.get("errors")
        return tuple(one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()


class InvalidSetupError(EigencalError):
    """The client is set up wrongly, or was given what it cannot send: no URL, no prompt, no file."""

    code = "invalid_setup"


class APIConnectionError(EigencalError):
    """The service did not answer.

    `code` is `connection_failed` where nothing was sent, and `connection_lost` where the connection broke
    off: whether the service acted on the call is not known.
    """

    code = "connection_lost"
    retryable = True


class APITimeoutError(APIConnectionError):
    """No answer came in the time given. The service may still be at work on it."""

    code = "timed_out"


class UnexpectedResponseError(EigencalError):
    """What answered does not speak this contract: a page, another service, another major version."""

    code = "unexpected_response"


class JobEndedError(EigencalError):
    """A job that was waited for ended without a result.

    `code` is `job_cancelled`, or the job's own where it failed; `Client.retry` goes on with a failed one.
    """

    code = "job_failed"


class APIStatusError(EigencalError):
    """The service, or a server before it, answered with an error."""

    code = "http_error"

    def __str__(self) -> str:
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.detail}{request}"


class BadRequestError(APIStatusError):
    """The request cannot be read (400)."""


class AuthenticationError(APIStatusError):
    """The route needs a key, or another one (401): give `key`, or set EIGENCAL_KEY."""


class PermissionDeniedError(APIStatusError):
    """The caller is known, or no key is set, but may not do this (403)."""


class NotFoundError(APIStatusError):
    """There is no such thing (404)."""


class ConflictError(APIStatusError):
    """The request contradicts how things are (409), as a job that has ended."""


class UnprocessableEntityError(APIStatusError):
    """The request does not fit the contract (422); `errors` lists what is wrong."""


class RateLimitError(APIStatusError):
    """Too many requests (429)."""


class ServerError(APIStatusError):
    """The service, or something that it needs, is at fault or has no room (5xx).

    `code` says what: `overloaded`, `llm_unavailable`, `deadline_exceeded`, `no_probability` ...
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
    """Return the error of a problem, also of one in OpenAI's shape; a proxy's may have anything in it."""
    inner = problem.get("error")
    told = {"detail": inner.get("message"), "code": inner.get("code")} if isinstance(inner, dict) else problem
    detail, code, request_id = (
        value if isinstance(value := told.get(name), str) else None
        for name in ("detail", "code", "request_id")
    )
    headers, retryable = headers or {}, told.get("retryable")
    asked = headers.get("retry-after", "")
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else APIStatusError)
    return kind(
        detail or fallback,
        status=status,
        code=code,
        # Proxies do not say; these two mean "later" whoever sends them.
        retryable=retryable if isinstance(retryable, bool) else status in (429, 503),
        request_id=request_id or headers.get("x-request-id"),
        retry_after_s=float(asked) if asked.isdecimal() else None,
        problem=problem,
    )


def error_of_response(response: httpx2.Response, content: bytes) -> EigencalError:
    """Return the error that a response tells whose body is `content`."""
    try:
        problem = json.loads(content)
    except (ValueError, RecursionError):
        problem = None
    # What is no problem, such as a proxy's page, is quoted.
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
    """Return the error for a request that was not answered, or not legibly."""
    where = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    why = str(failure) or type(failure).__name__  # many have no text
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
