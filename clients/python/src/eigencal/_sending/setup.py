"""How a client is set up: where the service is, by which key, how patiently."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeVar

import httpx

from eigencal._calls.call import JSON, Call
from eigencal._errors import InvalidSetup, UnexpectedAnswer
from eigencal._problems import error_of
from eigencal._sending.attempts import Attempts
from eigencal._version import __version__

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What both clients are told, checked. The key is never shown."""

    url: str = field(repr=False)
    key: str | None = field(repr=False)
    timeout_s: float
    retries: int
    longest_wait_s: float

    @classmethod
    def of(
        cls, url: str | None, key: str | None, timeout_s: float, retries: int, longest_wait_s: float
    ) -> "Setup":
        """Return the set-up; what is None comes from EIGENCAL_URL and EIGENCAL_KEY. Raises InvalidSetup."""
        # Looked up when a client is made: a program may set them after the import.
        where = (url or os.environ.get("EIGENCAL_URL") or DEFAULT_URL).strip().rstrip("/")
        secret = (key if key is not None else os.environ.get("EIGENCAL_KEY", "")).strip()
        _check_url(where)
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidSetup("The key holds characters that no key has: give it without quotes or spaces.")
        # Written so that a NaN is refused, too.
        if retries < 0 or not longest_wait_s >= 0:
            raise InvalidSetup("`retries` and `longest_wait_s` must be 0 or more.")
        return cls(where, secret or None, seconds(timeout_s), retries, longest_wait_s)

    def shown_url(self) -> str:
        """Return the URL for a person to see: without the user and password that it may hold."""
        return str(httpx.URL(self.url).copy_with(userinfo=b""))

    def limit_s(self, timeout_s: float | None) -> float:
        """Return the limit of a call in seconds: its own, or the client's. Raises InvalidSetup."""
        return self.timeout_s if timeout_s is None else seconds(timeout_s)

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        named = {"User-Agent": f"eigencal-python/{__version__}", "Accept": JSON}
        return named if self.key is None else {**named, "Authorization": f"Bearer {self.key}"}

    def attempts(self, call: Call[Any], timeout_s: float | None) -> Attempts:
        """Return the attempts that a call has."""
        return Attempts.of(
            call.repeat, self.retries, self.longest_wait_s, self.limit_s(timeout_s), call.deadline_ms
        )

    def patient(self, call: Call[Any]) -> Attempts:
        """Return the attempts of a call that may take any time, as long as something comes."""
        return Attempts.of(call.repeat, self.retries, self.longest_wait_s, math.inf)

    def request(self, call: Call[Any], attempts: Attempts) -> dict[str, Any]:
        """Return httpx's arguments for one attempt at a call without an upload."""
        # Of each request, not of the httpx client: that may be the caller's, for other servers, too.
        headers = {**self.headers(), **call.headers}
        content = None
        if call.body is not None:
            headers["Content-Type"] = JSON
            content = _encoded(_within(call.body, attempts))
        return {
            "method": call.method,
            "url": self.url + call.path,
            "headers": headers,
            "content": content,
            "params": call.query or None,
            # A service that is away is noticed soon, however long a score may take.
            "timeout": httpx.Timeout(attempts.left_s(), connect=min(CONNECT_TIMEOUT_S, attempts.left_s())),
        }


def checked(response: httpx.Response) -> httpx.Response:
    """Return a response that is a success. Raises ApiError for an error, UnexpectedAnswer for a redirect."""
    if response.is_success:
        return response
    if response.is_redirect:
        # Not followed: a body would be sent twice, and the key perhaps to another host.
        to = response.headers.get("location", "")
        raise UnexpectedAnswer(
            f"{response.request.url.path} is redirected to {to}: give that URL to the client."
        )
    raise error_of(response)


@contextmanager
def sendable() -> Iterator[None]:
    """Raise InvalidSetup where the block cannot put a request together: a URL too long, half a character."""
    try:
        yield
    except (httpx.InvalidURL, UnicodeError) as error:
        raise InvalidSetup(f"The request cannot be sent: {error}") from None


def seconds(given: object) -> float:
    """Return a time limit in seconds; endless is one, too. Raises InvalidSetup for what is none."""
    if isinstance(given, Real) and float(given) > 0:  # neither 0 nor a NaN
        return float(given)
    raise InvalidSetup(f"`timeout_s` must be a number of seconds over 0, not {given!r}.")


def _check_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidSetup(f"The URL of the service cannot be read: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidSetup("The URL of the service must begin with http:// or https:// and name a host.")


def _within(body: Mapping[str, Any], attempts: Attempts) -> Mapping[str, Any]:
    left_ms = attempts.deadline_left_ms()
    return body if left_ms is None else {**body, "deadline_ms": left_ms}


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_listed).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSetup(f"The request cannot be written as JSON: {error}") from None


def _listed(value: object) -> object:
    """Return what JSON has no name for as what it has: any collection is a list there."""
    if isinstance(value, Mapping):
        return dict(value)
    # Sets, dict views, arrays of numpy ..
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
