"""The errors that a caller of the service may see.

EigencalError
├── InvalidSetup              the client itself is set up wrongly (URL, key), or was given what it cannot send
├── NoAnswer                  the service did not answer
│   ├── ConnectionFailed      nobody listens there: nothing was sent
│   ├── ConnectionLost        the connection broke off before the answer was there
│   └── TimedOut              no answer in the time given
├── UnexpectedAnswer          what answered does not speak this contract (a proxy's page, another service)
├── JobEnded                  a job that was waited for ended without a result
│   ├── JobFailed
│   └── JobCancelled
└── ApiError                  the service, or a server before it, answered with an error
    ├── RequestRefused        4xx: the request is at fault
    │   ├── BadRequest            400
    │   ├── Unauthorized          401  MissingKey, BadKey
    │   ├── Forbidden             403  ScopeRequired
    │   ├── NotFound              404  ModelNotFound
    │   ├── MethodNotAllowed      405
    │   ├── RequestTimeout        408
    │   ├── Conflict              409
    │   ├── BodyTooLarge          413
    │   ├── UnsupportedMediaType  415
    │   ├── InvalidRequest        422  TooFewSamples, InvalidDevData
    │   ├── RateLimited           429
    │   └── HeaderTooLarge        431
    └── ServiceError          5xx: the service, or something that it needs, is at fault
        ├── InternalError         500
        ├── BadGateway            502  LLMError, LLMBadResponse (an LLMError), NoUsableAnswers
        ├── Unavailable           503  Overloaded, LLMUnavailable, EmbedderUnavailable, StoreUnavailable,
        │                              NoProbability
        └── GatewayTimeout        504  DeadlineExceeded

Each code of the service has its class; a code that this client does not know yet gets the class of its HTTP
status, and a status without a class gets RequestRefused, ServiceError or ApiError.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class EigencalError(Exception):
    """Base of every error of this client; `str(error)` is one line for a person, without keys and prompts.

    Attributes:
        code: What went wrong, for a program: stable.
        detail: What went wrong, for a person.
        status: HTTP status; None where no answer came.
        request_id: Id of the request, by which the service's log knows it; None where none is known.
        retryable: Whether the same call may succeed later.
        retry_after_s: Seconds after which to try again, where the service said so.
    """

    code: str = "error"
    status: int | None = None
    request_id: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own would call `__init__` with the detail alone, which most classes below do not take.
        return _revived, (type(self), self.args), self.__dict__


def _revived(kind: type[EigencalError], args: tuple[Any, ...]) -> EigencalError:
    return kind.__new__(kind, *args)  # its attributes follow


class InvalidSetup(EigencalError):
    """The client is set up wrongly, or was given what it cannot send: no URL, no prompt, no file."""

    code = "invalid_setup"


class NoAnswer(EigencalError):
    """The service did not answer."""

    code = "no_answer"
    retryable = True


class ConnectionFailed(NoAnswer):
    """Nobody listens there, or the name is not known: nothing was sent."""

    code = "connection_failed"


class ConnectionLost(NoAnswer):
    """The connection broke off before the answer was there. Whether the service acted on it is not known."""

    code = "connection_lost"


class TimedOut(NoAnswer):
    """No answer came in the time given. The service may still be at work on it."""

    code = "timed_out"


class UnexpectedAnswer(EigencalError):
    """What answered does not speak this contract: a page, another service, another major version.

    Also an error without a code of the service, but for those that a server before it may answer (401, 403,
    413, 429, 502, 503, 504 ..): these are an ApiError of their status.
    """

    code = "unexpected_answer"


class JobEnded(EigencalError):
    """A job that was waited for ended without a result.

    Attributes:
        job_id: Id of the job.
    """

    code = "job_ended"

    def __init__(self, detail: str, job_id: str, code: str | None = None) -> None:
        super().__init__(detail)
        self.job_id = job_id
        self.code = code or type(self).code


class JobFailed(JobEnded):
    """The job failed; `code` is the job's. `Client.retry` goes on with it and draws nothing twice."""

    code = "job_failed"


class JobCancelled(JobEnded):
    """Somebody cancelled the job."""

    code = "job_cancelled"


class ApiError(EigencalError):
    """The service, or a server before it, answered with an error.

    Attributes:
        title: The HTTP status in words.
        errors: Each thing wrong with the request, as `{"loc": [...], "msg": ...}` (rows of dev data: with
            their line); empty where the service lists none.
        problem: The whole body of the error (RFC 9457); empty where it was none.
    """

    code = "http_error"
    http_status: ClassVar[int | None] = None

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str | None = None,
        retryable: bool = False,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code or type(self).code
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.problem = dict(problem or {})
        title, listed = self.problem.get("title"), self.problem.get("errors")
        # A proxy's JSON may have anything under these names.
        self.title = title if isinstance(title, str) else ""
        several = listed if isinstance(listed, list | tuple) else ()
        self.errors: tuple[dict[str, Any], ...] = tuple(one for one in several if isinstance(one, dict))

    def __str__(self) -> str:
        told = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.detail}{told}"


class RequestRefused(ApiError):
    """The request is at fault (4xx)."""


class ServiceError(ApiError):
    """The service, or something that it needs, is at fault (5xx)."""


class BadRequest(RequestRefused):
    """The request cannot be read (400)."""

    code = "bad_request"
    http_status = 400


class Unauthorized(RequestRefused):
    """The route needs a key (401)."""

    http_status = 401


class MissingKey(Unauthorized):
    """The route needs a key and none was sent: give `key`, or set EIGENCAL_KEY."""

    code = "missing_key"


class BadKey(Unauthorized):
    """The key opens nothing."""

    code = "bad_key"


class Forbidden(RequestRefused):
    """The caller may not do this (403)."""

    http_status = 403


class ScopeRequired(Forbidden):
    """The caller is known, or no key is set, but this route is not for them."""

    code = "scope_required"


class NotFound(RequestRefused):
    """No such thing (404)."""

    code = "not_found"
    http_status = 404


class ModelNotFound(NotFound):
    """The LLM server does not serve the model asked for."""

    code = "model_not_found"


class MethodNotAllowed(RequestRefused):
    """The path has no such method (405)."""

    code = "method_not_allowed"
    http_status = 405


class RequestTimeout(RequestRefused):
    """The request was sent too slowly (408)."""

    code = "request_timeout"
    http_status = 408


class Conflict(RequestRefused):
    """The request contradicts how things are (409), as a job that has ended."""

    code = "conflict"
    http_status = 409


class BodyTooLarge(RequestRefused):
    """More bytes or rows than the service accepts (413)."""

    code = "body_too_large"
    http_status = 413


class UnsupportedMediaType(RequestRefused):
    """A body of a kind that the route does not read (415)."""

    code = "unsupported_media_type"
    http_status = 415


class InvalidRequest(RequestRefused):
    """The request does not fit the contract (422); `errors` lists what is wrong."""

    code = "invalid_request"
    http_status = 422


class TooFewSamples(InvalidRequest):
    """Fewer answers than a score takes: two, or one by evidence."""

    code = "too_few_samples"


class InvalidDevData(InvalidRequest):
    """Rows of dev data are bad: `errors` lists line, field and reason of the first."""

    code = "invalid_dev_data"


class RateLimited(RequestRefused):
    """Too many requests (429)."""

    code = "rate_limited"
    http_status = 429


class HeaderTooLarge(RequestRefused):
    """The headers are too large (431)."""

    code = "header_too_large"
    http_status = 431


class InternalError(ServiceError):
    """Something went wrong in the service (500); its log has it under `request_id`."""

    code = "internal"
    http_status = 500


class BadGateway(ServiceError):
    """What the service asked answered badly (502)."""

    http_status = 502


class LLMError(BadGateway):
    """The LLM server answered with an error: `problem` has `llm_status` and `llm_message`."""

    code = "llm_error"


class LLMBadResponse(LLMError):
    """The LLM server answered with something that is no completion."""

    code = "llm_bad_response"


class NoUsableAnswers(BadGateway):
    """Fewer of the answers drawn hold a text than a score takes: they are empty, or only reasoning."""

    code = "no_usable_answers"


class Unavailable(ServiceError):
    """The service cannot do this for now (503); `retry_after_s` says when to try again."""

    http_status = 503


class Overloaded(Unavailable):
    """The queue of the service is full."""

    code = "overloaded"


class LLMUnavailable(Unavailable):
    """The LLM server cannot be reached, or refuses work for now."""

    code = "llm_unavailable"


class EmbedderUnavailable(Unavailable):
    """The embedder cannot embed now."""

    code = "embedder_unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be reached now."""

    code = "store_unavailable"


class NoProbability(Unavailable):
    """A probability is asked for, and no calibration that fits tells one."""

    code = "no_probability"


class GatewayTimeout(ServiceError):
    """It took too long (504)."""

    http_status = 504


class DeadlineExceeded(GatewayTimeout):
    """The deadline struck before there was enough to score."""

    code = "deadline_exceeded"
