"""Errors, each with a stable `code`; `service.api.errors` maps codes to HTTP status.

A message is written for the caller: it never holds an exception's text, a path, a key or a prompt.
"""

from collections.abc import Sequence
from typing import Any, ClassVar


class EigencalError(Exception):
    """Base of every error that the service answers for.

    `detail` is shown to the caller; `retryable` says whether the same request may succeed later;
    `retry_after_s` becomes a Retry-After header; `extra` becomes further members of the problem body.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, *, retry_after_s: float | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.extra = extra

    @property
    def full_detail(self) -> str:
        """The detail and the message of another server, for the owner of a job."""
        return self.detail


class InvalidRequest(EigencalError):
    """The request does not fit; `errors` lists `{"loc": [...], "msg": ...}` as in the API."""

    code = "invalid_request"

    def __init__(self, detail: str, errors: Sequence[dict[str, Any]] = ()) -> None:
        extra: dict[str, Any] = {"errors": list(errors)} if errors else {}
        super().__init__(detail, **extra)


class TooFewSamples(InvalidRequest):
    """Fewer answers were asked for, or supplied, than a score takes: two, or one by evidence."""

    code = "too_few_samples"


class InvalidDevData(InvalidRequest):
    """An uploaded dev set cannot be used.

    `errors` lists line, field and reason of the first bad rows, `total_bad` counts them all.
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


class BadKey(EigencalError):
    """The bearer key opens nothing."""

    code = "bad_key"


class ScopeRequired(EigencalError):
    """The caller is known, or no key is set, but this route is not for them."""

    code = "scope_required"


class BodyTooLarge(EigencalError):
    """The body, packed or unpacked, is over the size limit; `limit_bytes` or `limit_rows` tells which."""

    code = "body_too_large"

    def __init__(self, detail: str, **limits: int) -> None:
        super().__init__(detail, **limits)


class UnsupportedMediaType(EigencalError):
    """The body is of a media type that the route does not read."""

    code = "unsupported_media_type"


class NotFound(EigencalError):
    """No such resource."""

    code = "not_found"


class ModelNotFound(EigencalError):
    """The LLM server does not serve the model asked for."""

    code = "model_not_found"


class Conflict(EigencalError):
    """The request contradicts the state of the resource."""

    code = "conflict"


class DeadlineExceeded(EigencalError):
    """The deadline, or the LLM's time limit, struck before there was enough to score (answers, vectors)."""

    code = "deadline_exceeded"
    retryable = True


SERVER_MESSAGE = " It said: "  # what follows may repeat a prompt, and is for no log


class LLMError(EigencalError):
    """The LLM server answered with an error: `llm_status` and `llm_message` tell what it said."""

    code = "llm_error"

    @property
    def full_detail(self) -> str:
        """The detail and the server's message."""
        message = self.extra.get("llm_message")
        return f"{self.detail}{SERVER_MESSAGE}{message}" if message else self.detail

    def __init__(self, detail: str, *, llm_status: int | None = None, llm_message: str | None = None) -> None:
        members: dict[str, Any] = {"llm_status": llm_status, "llm_message": llm_message}
        super().__init__(detail, **{k: v for k, v in members.items() if v is not None})


class PromptTooLong(LLMError):
    """Prompt and `max_tokens` are more tokens than the embedded LLM takes."""

    code = "invalid_request"


class LLMBadResponse(LLMError):
    """The LLM server answered with something that is no completion."""

    code = "llm_bad_response"
    retryable = True


class NoUsableAnswers(EigencalError):
    """Fewer of the answers drawn hold a text than a score takes; the same request is drawn alike."""

    code = "no_usable_answers"


class LLMUnavailable(EigencalError):
    """The LLM server cannot be reached, or refuses work for now with a transient status code."""

    code = "llm_unavailable"
    retryable = True


class EmbedderUnavailable(EigencalError):
    """The embedder cannot embed now."""

    code = "embedder_unavailable"
    retryable = True


class EmbedderRefusal(EmbedderUnavailable):
    """The embedding server refuses the request, which would fail again."""

    retryable = False

    def __init__(self, detail: str, message: str = "", *, status: int = 400) -> None:
        super().__init__(detail)
        self.message = message
        self.status = status

    @property
    def full_detail(self) -> str:
        """The detail and the server's message."""
        return f"{self.detail}{SERVER_MESSAGE}{self.message}" if self.message else self.detail


class StoreUnavailable(EigencalError):
    """The store cannot be reached now."""

    code = "store_unavailable"
    retryable = True


class DamagedRow(EigencalError):
    """A stored row cannot be read. The same request fails until the row is restored or deleted."""

    code = "damaged_row"

    def __init__(self, table: str, row_id: str) -> None:
        super().__init__(f"Row {row_id} of the table {table} is damaged. Restore it from a backup.")


class NoProbability(EigencalError):
    """A probability is asked for, and no calibration that fits this set-up tells one."""

    code = "no_probability"


class Overloaded(EigencalError):
    """The service's own queue is full."""

    code = "overloaded"
    retryable = True


class Unscorable(Exception):
    """A call or an answer that nothing can be scored of, which is no error: the answer goes on.

    `code` is stable, the message for the caller.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
