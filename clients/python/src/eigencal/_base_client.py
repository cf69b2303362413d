"""Calls, sent and repeated: both clients build requests and parse responses alike, only sending differs."""

import asyncio
import itertools
import json
import logging
import math
import os
import random
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from numbers import Real
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import httpx
import stamina
from pydantic import SecretStr, TypeAdapter, ValidationError

from eigencal._exceptions import (
    APIConnectionError,
    APIStatusError,
    EigencalError,
    InvalidSetupError,
    RateLimitError,
    UnexpectedResponseError,
    error_of_response,
    error_of_transport,
)
from eigencal._streaming import LineDecoder
from eigencal._uploads import Upload
from eigencal._version import __version__

T = TypeVar("T")
C = TypeVar("C", httpx.Client, httpx.AsyncClient)
W = TypeVar("W", httpx.BaseTransport, httpx.AsyncBaseTransport)
JSON = "application/json"
DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S = 600.0
DEFAULT_RETRIES = 4
DEFAULT_LONGEST_WAIT_S = 30.0
CONNECT_TIMEOUT_S = 10.0  # a service that is away is noticed soon, however long a score may take
FIRST_WAIT_S = 0.5
DEADLINE_GRACE_S = 10.0  # after its deadline the service still embeds what came, and answers
MAX_SOCKET_TIMEOUT_S = 1e6  # 11 days: sockets take no limit that is endless
# stamina logs each repeat as a warning: where nobody has set up logging, that is no line on stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


# A call as data


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how the body of its answer is parsed. `path` begins with a slash and is quoted.

    `is_idempotent`: its effect is the same however often it is made. A score is such a call: it changes
    nothing, and the service stops drawing answers when its caller is gone.
    """

    method: str
    path: str
    parse: Callable[[bytes], T]
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    upload: Upload | None = None
    is_idempotent: bool = True

    def may_repeat(self, error: EigencalError) -> bool:
        """Tell whether the call may be made again after this error.

        A time limit that struck is never a reason: the service may still be at work on the first call.
        """
        # After these nothing was begun for certain.
        if error.code in ("connection_failed", "overloaded") or isinstance(error, RateLimitError):
            return True
        if not self.is_idempotent:
            return False
        if isinstance(error, APIStatusError):
            return error.retryable and error.status in (502, 503, 504)
        return isinstance(error, APIConnectionError) and error.code == "connection_lost"


def json_parser(kind: Any) -> Callable[[bytes], Any]:
    """Return what parses a JSON body as a type."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return adapter.validate_json


def parse_nothing(content: bytes) -> None:
    """Parse the body of an answer that has none."""


def parse_text(content: bytes) -> str:
    """Parse a body as text."""
    return content.decode("utf-8", "replace")


def format_path(template: str, **parts: str) -> str:
    """Return a path with its parts quoted, so that an id never becomes another path."""
    return template.format(**{name: _quoted(part) for name, part in parts.items()})


def _quoted(part: str) -> str:
    # Quoting leaves dots as they are, and on its way `/jobs/..` becomes `/`.
    if not isinstance(part, str) or part in ("", ".", ".."):
        raise InvalidSetupError(f"{part!r} is no id.")
    try:
        return quote(part, safe="")
    except UnicodeEncodeError:
        raise InvalidSetupError(f"{part!a} is no id: it holds half of a character.") from None


def header(name: str, value: str) -> dict[str, str]:
    """Return a header of the caller's, by its name. Raises InvalidSetupError for what no header can hold."""
    if not (value.isascii() and value.isprintable() and value.strip() == value):
        raise InvalidSetupError(f"{name} holds characters that no header can: {value!a}.")
    return {name: value}


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are given: None means left out."""
    # A generator could be read for the first attempt alone.
    return {
        name: list(value) if isinstance(value, Iterator) else value
        for name, value in fields.items()
        if value is not None
    }


# Time, and when to try again


def seconds(value: object) -> float:
    """Return a time limit in seconds; endless is one, too. Raises InvalidSetupError for what is none."""
    if isinstance(value, Real) and float(value) > 0:  # neither 0 nor a NaN
        return float(value)
    raise InvalidSetupError(f"`timeout_s` must be a number of seconds over 0, not {value!r}.")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When a call ends, its repeats included, and the deadline that is sent with it; both monotonic."""

    ends_at: float
    deadline_at: float = math.inf

    @classmethod
    def of(cls, timeout_s: float, deadline_ms: object = None) -> "TimeLimit":
        """Return the limit of a call that begins now."""
        now = time.monotonic()
        if not isinstance(deadline_ms, int):
            return cls(now + timeout_s)
        deadline_at = now + deadline_ms / 1000
        return cls(min(now + timeout_s, deadline_at + DEADLINE_GRACE_S), deadline_at)

    @property
    def last_start(self) -> float:
        """When the last repeat may begin: past its deadline a score is of no use to the caller."""
        return min(self.ends_at, self.deadline_at)

    @property
    def is_over(self) -> bool:
        """Whether the time of the call is over."""
        return time.monotonic() >= self.ends_at

    def left_s(self) -> float:
        """Return the seconds that are left; never 0, which would mean no limit."""
        return min(max(self.ends_at - time.monotonic(), 0.001), MAX_SOCKET_TIMEOUT_S)

    def within_deadline(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a body with what is left of its deadline, 1 ms at least."""
        if self.deadline_at == math.inf:
            return body
        return {**body, "deadline_ms": max(1, round((self.deadline_at - time.monotonic()) * 1000))}


def retry_policy(
    may_repeat: Callable[[EigencalError], bool],
    last_start: float,
    *,
    attempts: int | None,
    first_wait_s: float = FIRST_WAIT_S,
    longest_wait_s: float,
    longest_retry_after_s: float,
) -> dict[str, Any]:
    """Return the arguments of `stamina.retry_context` for one call.

    The wait doubles up to `longest_wait_s`, each a little different, and is no less than what a Retry-After
    asks for. There is none where that is more than `longest_retry_after_s`: sooner would be refused again.
    """
    failures = itertools.count()

    def wait_after(error: Exception) -> bool | float:
        if not isinstance(error, EigencalError) or not may_repeat(error):
            return False
        bound_s = min(longest_wait_s, first_wait_s * 2.0 ** min(next(failures), 20))  # no float overflows
        asked_s = error.retry_after_s
        if asked_s is None:
            wait_s = random.uniform(bound_s / 2, bound_s)
        elif asked_s <= longest_retry_after_s:
            wait_s = asked_s + random.uniform(0.0, bound_s / 2)
        else:
            return False
        return wait_s if time.monotonic() + wait_s < last_start else False

    return {"on": wait_after, "attempts": attempts, "timeout": None}


# What both clients share


class BaseClient(Generic[C, W]):
    """How a client is set up, how it builds a request and parses a response."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = DEFAULT_RETRIES,
        longest_wait_s: float = DEFAULT_LONGEST_WAIT_S,
        http_client: C | None = None,
        transport: W | None = None,
    ) -> None:
        # Looked up when a client is made: a program may set them after the import.
        self._url = (url or os.environ.get("EIGENCAL_URL") or DEFAULT_URL).strip().rstrip("/")
        secret = (key if key is not None else os.environ.get("EIGENCAL_KEY", "")).strip()
        try:
            parsed = httpx.URL(self._url)
        except httpx.InvalidURL as error:
            raise InvalidSetupError(f"The URL of the service cannot be read: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InvalidSetupError(
                "The URL of the service must begin with http:// or https:// and name a host."
            )
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidSetupError(
                "The key holds characters that no key has: give it without quotes or spaces."
            )
        # Written so that a NaN is refused, too.
        if retries < 0 or not longest_wait_s >= 0:
            raise InvalidSetupError("`retries` and `longest_wait_s` must be 0 or more.")
        self._key = SecretStr(secret)
        self._timeout_s = seconds(timeout_s)
        self._retries, self._longest_wait_s = retries, longest_wait_s
        self._owns_http = http_client is None
        self._transport: W | None = transport
        self._connections: C = http_client or self._connect()
        self._process = os.getpid()

    def _connect(self) -> C:
        """Return an httpx client of ours."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Where the service is, without a slash at the end."""
        return self._url

    def __repr__(self) -> str:
        # Without the user and password that the URL may hold.
        return f"{type(self).__name__}({str(httpx.URL(self._url).copy_with(userinfo=b''))!r})"

    @property
    def _http(self) -> C:
        """The httpx client of this process: two on one socket would take each other's answers."""
        if self._process != os.getpid():
            if not self._owns_http or self._transport is not None:
                raise InvalidSetupError(
                    "This client was made before a fork, with an `http_client` or a `transport` of yours: "
                    "make another in the new process, since answers would go to the wrong one."
                )
            # The old one is left as it is: another thread may have held its lock in the moment of the fork.
            self._connections, self._process = self._connect(), os.getpid()
        return self._connections

    def _limit_s(self, timeout_s: float | None) -> float:
        """Return the limit of a call in seconds: its own, or the client's."""
        return self._timeout_s if timeout_s is None else seconds(timeout_s)

    def _time_limit(self, call: Call[Any], timeout_s: float | None) -> TimeLimit:
        return TimeLimit.of(self._limit_s(timeout_s), (call.body or {}).get("deadline_ms"))

    def _retry_policy(self, call: Call[Any], last_start: float = math.inf) -> dict[str, Any]:
        return retry_policy(
            call.may_repeat,
            last_start,
            attempts=self._retries + 1,
            longest_wait_s=self._longest_wait_s,
            longest_retry_after_s=self._longest_wait_s,
        )

    def _build_request(
        self, call: Call[Any], limit: TimeLimit, upload: Upload | None = None
    ) -> httpx.Request:
        """Return one attempt at a call. Raises InvalidSetupError for what cannot be sent."""
        # Headers of each request, not of the httpx client: that may be the caller's, for other servers, too.
        headers = {"User-Agent": f"eigencal-python/{__version__}", "Accept": JSON}
        if secret := self._key.get_secret_value():
            headers["Authorization"] = f"Bearer {secret}"
        content = None
        if call.body is not None:
            headers["Content-Type"] = JSON
            content = _encoded(limit.within_deadline(call.body))
        left_s = limit.left_s()
        try:
            return self._http.build_request(
                call.method,
                self._url + call.path,
                headers={**headers, **call.headers},
                content=content,
                params=call.query,
                timeout=httpx.Timeout(left_s, connect=min(CONNECT_TIMEOUT_S, left_s)),
                **(upload.parts() if upload else {}),
            )
        except (httpx.InvalidURL, UnicodeError) as error:  # a URL too long, half a character
            raise InvalidSetupError(f"The request cannot be sent: {error}") from None

    def _parse_response(self, call: Call[T], response: httpx.Response, content: bytes) -> T:
        """Return what a body says. Raises the error that it tells, or UnexpectedResponseError."""
        _raise_for_status(response, content)
        try:
            return call.parse(content)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]  # places, never contents
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise UnexpectedResponseError(
                f"{call.method} {call.path} was answered {response.status_code}, but not as the contract has "
                f"it: {where}: {first['msg']}"
            ) from None


def _raise_for_status(response: httpx.Response, content: bytes) -> None:
    if response.is_redirect:
        # Not followed: a body would be sent twice, and the key perhaps to another host.
        to = response.headers.get("location", "")
        raise UnexpectedResponseError(
            f"{response.request.url.path} is redirected to {to}: give that URL to the client.",
            status=response.status_code,
        )
    if not response.is_success:
        raise error_of_response(response, content)


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_collection).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSetupError(f"The request cannot be written as JSON: {error}") from None


def _collection(value: Any) -> Any:
    """Return what JSON knows for a set, a dict view, an array of numpy .."""
    return dict(value) if isinstance(value, Mapping) else list(value)


_TRANSPORT_ERRORS = (httpx.RequestError, httpx.StreamError)


class SyncAPIClient(BaseClient[httpx.Client, httpx.BaseTransport]):
    """Sends calls where the caller waits."""

    def _connect(self) -> httpx.Client:
        http = httpx.Client(transport=self._transport)
        # A client that nobody closes lets go of its sockets when it is forgotten.
        weakref.finalize(self, _close, http, os.getpid())
        return http

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent. An `http_client` that was handed in stays open: it is yours."""
        if self._owns_http:
            _close(self._connections, self._process)

    def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Send a call, repeat it where that is safe, and return what its answer says."""
        limit = self._time_limit(call, timeout_s)
        with call.upload.copied() if call.upload else nullcontext() as upload:
            for attempt in stamina.retry_context(**self._retry_policy(call, limit.last_start)):
                with attempt:
                    return self._attempt(call, limit, upload)
        raise AssertionError("unreachable")

    def _attempt(self, call: Call[T], limit: TimeLimit, upload: Upload | None = None) -> T:
        with self._response(call, limit, upload) as response:
            return self._parse_response(call, response, _read(response, limit))

    @contextmanager
    def _response(
        self, call: Call[Any], limit: TimeLimit, upload: Upload | None = None
    ) -> Iterator[httpx.Response]:
        """Make one attempt at a call and yield its answer, whose body is to be read."""
        request = self._build_request(call, limit, upload)
        try:
            response = self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                response.close()
        except _TRANSPORT_ERRORS as failure:
            raise error_of_transport(failure, request) from failure

    def _lines(self, call: Call[Any], silence_s: float) -> Generator[bytes, None, None]:
        """Make one attempt at a call and yield the lines of its answer as they come; empty ones, too."""
        limit = TimeLimit.of(silence_s)
        with self._response(call, limit) as response:
            if not response.is_success:
                _raise_for_status(response, _read(response, limit))
            decoder = LineDecoder(silence_s)
            for chunk in response.iter_bytes():
                yield from decoder.feed(chunk)
            yield from decoder.end()


def _close(http: httpx.Client, process: int) -> None:
    if process == os.getpid():
        http.close()


def _read(response: httpx.Response, limit: TimeLimit) -> bytes:
    """Return the whole body, in the time that the call has left."""
    # Sockets count each wait anew: none is longer than what is left now, and after each the clock is read.
    response.request.extensions["timeout"]["read"] = limit.left_s()
    pieces = []
    for piece in response.iter_bytes():
        if limit.is_over:
            raise httpx.ReadTimeout("", request=response.request)
        pieces.append(piece)
    return b"".join(pieces)


class AsyncAPIClient(BaseClient[httpx.AsyncClient, httpx.AsyncBaseTransport]):
    """Sends calls that are awaited."""

    def _connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; idempotent. An `http_client` that was handed in stays open: it is yours."""
        if self._owns_http and self._process == os.getpid():
            await self._connections.aclose()

    async def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Send a call, repeat it where that is safe, and return what its answer says."""
        limit = self._time_limit(call, timeout_s)
        with call.upload.copied() if call.upload else nullcontext() as upload:
            async for attempt in stamina.retry_context(**self._retry_policy(call, limit.last_start)):
                with attempt:
                    return await self._attempt(call, limit, upload)
        raise AssertionError("unreachable")

    async def _attempt(self, call: Call[T], limit: TimeLimit, upload: Upload | None = None) -> T:
        async with self._response(call, limit, upload) as response:
            return self._parse_response(call, response, await _aread(response, limit))

    @asynccontextmanager
    async def _response(
        self, call: Call[Any], limit: TimeLimit, upload: Upload | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Make one attempt at a call and yield its answer, whose body is to be read."""
        request = self._build_request(call, limit, upload)
        try:
            async with _within(limit, request):
                response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                await response.aclose()
        except _TRANSPORT_ERRORS as failure:
            raise error_of_transport(failure, request) from failure

    async def _lines(self, call: Call[Any], silence_s: float) -> AsyncGenerator[bytes, None]:
        """Make one attempt at a call and yield the lines of its answer as they come; empty ones, too."""
        limit = TimeLimit.of(silence_s)
        async with self._response(call, limit) as response:
            if not response.is_success:
                _raise_for_status(response, await _aread(response, limit))
            decoder = LineDecoder(silence_s)
            async for chunk in response.aiter_bytes():
                for line in decoder.feed(chunk):
                    yield line
            for line in decoder.end():
                yield line


async def _aread(response: httpx.Response, limit: TimeLimit) -> bytes:
    """Return the whole body, in the time that the call has left."""
    async with _within(limit, response.request):
        return await response.aread()


@asynccontextmanager
async def _within(limit: TimeLimit, request: httpx.Request) -> AsyncIterator[None]:
    """Break off what the block awaits when the time of the call is over, however its answer drips."""
    try:
        async with asyncio.timeout(limit.left_s()):
            yield
    except TimeoutError as error:
        raise httpx.ReadTimeout("", request=request) from error
