"""Errors, each with a stable `code` and its HTTP status. `http.problems` makes responses of them.

Messages are written for the caller. They never contain an exception's text, a path, a key or a prompt.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar


class EigencalError(Exception):
    """Base of the service's errors.

    `detail`: shown to the caller; `retryable`: True if the same request may succeed later; `retry_after_s`:
    the Retry-After header, in seconds; `headers`: further headers; `extra`: further members of the problem
    body.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, detail: str, *, retry_after_s: float | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.extra = extra

    @property
    def full_detail(self) -> str:
        """The detail and the message of another server, for the owner of a job."""
        return self.detail


class InternalError(EigencalError):
    """An unexpected error. Only the log has its cause."""

    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "Something went wrong in the service; its log has the details under this request id."
        )


class BadRequest(EigencalError):
    """The request is not well-formed HTTP, or not what its headers say."""

    code = "bad_request"
    status = 400


class AmbiguousLength(BadRequest):
    """The body has two lengths, so a proxy and the service could disagree on where it ends."""

    headers = MappingProxyType({"Connection": "close"})


class InvalidRequest(EigencalError):
    """The request is invalid. `errors`: a list of `{"loc": [...], "msg": ...}`, as in the API."""

    code = "invalid_request"
    status = 422

    def __init__(self, detail: str, errors: Sequence[dict[str, Any]] = ()) -> None:
        extra: dict[str, Any] = {"errors": list(errors)} if errors else {}
        super().__init__(detail, **extra)


class TooFewSamples(InvalidRequest):
    """Fewer answers were asked for, or supplied, than a score needs: two, or one with evidence."""

    code = "too_few_samples"


class InvalidDevData(InvalidRequest):
    """An uploaded dev set is invalid.

    `errors`: line, field and reason of the first bad rows; `total_bad`: the number of all bad rows.
    """

    code = "invalid_dev_data"

    def __init__(
        self, detail: str, errors: Sequence[dict[str, Any]] = (), total_bad: int | None = None
    ) -> None:
        super().__init__(detail, errors)
        self.extra |= {} if total_bad is None else {"total_bad": total_bad}


class MissingKey(EigencalError):
    """The route needs a bearer key and none was sent."""

    code = "missing_key"
    status = 401
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class BadKey(EigencalError):
    """The bearer key is not valid."""

    code = "bad_key"
    status = 401
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class ScopeRequired(EigencalError):
    """The caller's key is valid, or no key is set, but the caller may not use this route."""

    code = "scope_required"
    status = 403


class BodyTooLarge(EigencalError):
    """The body, packed or unpacked, exceeds a size limit, such as `limit_bytes` or `limit_rows`."""

    code = "body_too_large"
    status = 413

    def __init__(self, detail: str, **limits: int) -> None:
        super().__init__(detail, **limits)


class UnsupportedMediaType(EigencalError):
    """The body is of a media type that the route does not read."""

    code = "unsupported_media_type"
    status = 415


class NotFound(EigencalError):
    """No such resource."""

    code = "not_found"
    status = 404


class MethodNotAllowed(EigencalError):
    """The path has no such method. `allowed`: the value of the Allow header."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, detail: str, allowed: str) -> None:
        super().__init__(detail)
        self.headers = {"Allow": allowed}


class ModelNotFound(EigencalError):
    """The LLM server does not serve this model."""

    code = "model_not_found"
    status = 404


class Conflict(EigencalError):
    """The request contradicts the state of the resource."""

    code = "conflict"
    status = 409


class DeadlineExceeded(EigencalError):
    """The deadline or the LLM's time limit passed before the answers or the score were ready."""

    code = "deadline_exceeded"
    status = 504
    retryable = True


SERVER_MESSAGE = " It said: "  # the text after it may repeat a prompt and must not be logged


class LLMError(EigencalError):
    """The LLM server responded with an error. `llm_status`, `llm_message`: its status and message."""

    code = "llm_error"
    status = 502

    @property
    def full_detail(self) -> str:
        """The detail and the server's message."""
        message = self.extra.get("llm_message")
        return f"{self.detail}{SERVER_MESSAGE}{message}" if message else self.detail

    def __init__(self, detail: str, *, llm_status: int | None = None, llm_message: str | None = None) -> None:
        members: dict[str, Any] = {"llm_status": llm_status, "llm_message": llm_message}
        super().__init__(detail, **{k: v for k, v in members.items() if v is not None})


class LLMBadResponse(LLMError):
    """The response of the LLM server is not a completion."""

    code = "llm_bad_response"
    retryable = True


class NoUsableAnswers(EigencalError):
    """Too few of the drawn answers have a text. The same request would fail again."""

    code = "no_usable_answers"
    status = 502


class LLMUnavailable(EigencalError):
    """The LLM server cannot be reached, or refuses work with a transient status code."""

    code = "llm_unavailable"
    status = 503
    retryable = True


class EmbedderUnavailable(EigencalError):
    """The embedder cannot embed now."""

    code = "embedder_unavailable"
    status = 503
    retryable = True


class EmbedderRefusal(EmbedderUnavailable):
    """The embedding server refuses the request. The same request would fail again."""

    retryable = False

    def __init__(self, detail: str, message: str = "", *, status: int = 400) -> None:
        super().__init__(detail)
        self.message = message
        self.server_status = status

    @property
    def full_detail(self) -> str:
        """The detail and the server's message."""
        return f"{self.detail}{SERVER_MESSAGE}{self.message}" if self.message else self.detail


class StoreUnavailable(EigencalError):
    """The store cannot be reached now."""

    code = "store_unavailable"
    status = 503
    retryable = True


class DamagedRow(EigencalError):
    """A stored row cannot be read. The same request fails until the row is restored or deleted."""

    code = "damaged_row"
    status = 500

    def __init__(self, table: str, row_id: str) -> None:
        super().__init__(f"Row {row_id} of the table {table} is damaged. Restore it from a backup.")


class NoProbability(EigencalError):
    """A probability was asked for, and no calibration for this set-up gives one."""

    code = "no_probability"
    status = 503


class Overloaded(EigencalError):
    """The service's own queue is full."""

    code = "overloaded"
    status = 503
    retryable = True


class Unscorable(Exception):
    """A call or an answer that cannot be scored. It is not an error: the answer is passed on.

    `code`: stable; `message`: for the caller.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
