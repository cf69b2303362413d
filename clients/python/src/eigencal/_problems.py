"""From what came, or did not come, to the error of that name."""

import json
import math
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from eigencal import _errors as errors
from eigencal._models.service import Problem

MOST_SHOWN = 200  # characters of a body that is no problem
LONGEST_RETRY_AFTER_S = 3600.0  # whatever a server asks for
# What a server before the service may answer in words of its own: it wants a key, is asked too much or too
# often, or cannot reach the service. Whatever else comes without a code is of something else.
_OF_A_PROXY = {401, 403, 407, 408, 411, 413, 414, 429, 431, 451, 502, 503, 504, *range(520, 531)}
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}  # OpenSSL's
_LEAVE_OUT_V1 = "If the URL given ends in /v1, leave out /v1: that is for OpenAI's clients."


def _descendants(kind: type[errors.ApiError]) -> Iterator[type[errors.ApiError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _descendants(one)


# Of the classes themselves: an error that is added to the tree is found here without a second list.
_KINDS = tuple(_descendants(errors.ApiError))
BY_CODE = {kind.code: kind for kind in _KINDS if "code" in vars(kind)}
BY_STATUS = {kind.http_status: kind for kind in _KINDS if "http_status" in vars(kind)}


def kind_of(code: str | None, status: int) -> type[errors.ApiError]:
    """Return the class of an error: by its code, else by its status."""
    if code in BY_CODE:
        return BY_CODE[code]
    family = {4: errors.RequestRefused, 5: errors.ServiceError}.get(status // 100, errors.ApiError)
    return BY_STATUS.get(status, family)


def error_of(response: httpx.Response) -> errors.EigencalError:
    """Return the error that a response tells, whose body has been read."""
    said = _said(response)
    status, code = response.status_code, said.get("code")
    code = code if isinstance(code, str) else None  # a proxy's JSON may have any
    if _is_foreign(response, code, said):
        return _foreign(response)
    detail, retryable, request_id = said.get("detail"), said.get("retryable"), said.get("request_id")
    return kind_of(code, status)(
        detail if isinstance(detail, str) else _page(response, ", not with an error of Eigencal"),
        status=status,
        code=code,
        # Proxies do not say; these two mean "later" whoever sends them.
        retryable=retryable if isinstance(retryable, bool) else status in (429, 503),
        request_id=request_id if isinstance(request_id, str) else response.headers.get("x-request-id"),
        retry_after_s=retry_after_s(response.headers),
        problem=said,
    )


def _is_foreign(response: httpx.Response, code: str | None, said: Mapping[str, Any]) -> bool:
    """Tell whether this is no answer of the service, nor of a server before it."""
    if response.status_code in _OF_A_PROXY:
        return False
    if code is None:
        return True
    # Errors in OpenAI's shape come from the drop-in alone, which has nothing to be found but its paths.
    drop_in = response.request.url.path.endswith(("/models", "/completions"))
    return "error" in said and (not drop_in or code == errors.NotFound.code)


def _foreign(response: httpx.Response) -> errors.UnexpectedAnswer:
    behind_v1 = response.status_code == 404 and "/v1/" in response.request.url.path
    hint = f". {_LEAVE_OUT_V1}" if behind_v1 else ""
    error = errors.UnexpectedAnswer(f"This is not an Eigencal service: {_page(response)}{hint}")
    error.status, error.request_id = response.status_code, response.headers.get("x-request-id")
    return error


def error_of_problem(problem: Problem | None) -> errors.ApiError:
    """Return the error of a problem that came in a line of a batch."""
    if problem is None:
        return errors.ApiError("The line has neither a result nor an error.", status=200)
    return kind_of(problem.code, problem.status)(
        problem.detail,
        status=problem.status,
        code=problem.code,
        retryable=problem.retryable,
        request_id=problem.request_id,
        problem=problem.model_dump(mode="json"),
    )


def _said(response: httpx.Response) -> dict[str, Any]:
    """Return the members of a problem, also of one in OpenAI's shape; empty for any other body."""
    try:
        said = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    inner = said.get("error")
    if isinstance(inner, dict):  # the drop-in's routes
        return {"detail": inner.get("message"), "code": inner.get("code"), "error": inner}
    return said


def _page(response: httpx.Response, judged: str = "") -> str:
    """Return what is said of a body that is no problem, such as a proxy's page; `judged` goes with it."""
    kind = response.headers.get("content-type", "no media type")
    shown = " ".join(response.text.split())[:MOST_SHOWN]
    where = f"{response.request.method} {response.request.url.copy_with(query=None, userinfo=b'')}"
    told = f": {shown}" if shown else ""
    return f"{where} was answered {response.status_code} with {kind}{judged}{told}"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given in seconds or as a date; None: there is none."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        seconds = _until(said)
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _until(date: str) -> float:
    try:
        then = parsedate_to_datetime(date)
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        return (then - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return math.nan


def no_answer(
    failure: httpx.RequestError | httpx.StreamError, request: httpx.Request
) -> errors.EigencalError:
    """Return the error for a request that was not answered, or not legibly."""
    where = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    why = str(failure) or type(failure).__name__  # many have no text
    if isinstance(failure, httpx.DecodingError | httpx.TooManyRedirects):
        return errors.UnexpectedAnswer(f"The answer of {where} cannot be read: {why}")
    if (refused := _tls_error(failure)) is not None:
        return errors.UnexpectedAnswer(f"{where} {refused}")
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        return errors.ConnectionFailed(f"Nothing answers at {where}: {why}")
    if isinstance(failure, httpx.TimeoutException):
        return errors.TimedOut(f"{where} did not answer in time to {request.method} {request.url.path}.")
    return errors.ConnectionLost(f"The connection to {where} broke off: {why}")


def _tls_error(failure: BaseException) -> str | None:
    """Return what is wrong with the TLS of what listens there; None: something else is wrong."""
    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"shows a certificate that is not trusted: {cause.verify_message}"
    if cause is None or cause.reason not in _NO_TLS:
        return None
    return "is not spoken to by https: its URL begins with http://"
