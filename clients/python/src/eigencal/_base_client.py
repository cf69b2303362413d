"""Sending and retrying calls. Both clients share the building of requests and the parsing of responses."""

import functools
import json
import logging
import math
import os
import random
import shutil
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import NoneType
from typing import IO, Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote

import httpx2
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
from eigencal._version import __version__

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", httpx2.Client, httpx2.AsyncClient)
Rows: TypeAlias = "str | os.PathLike[str] | IO[bytes] | Iterable[Mapping[str, Any]]"
"""Dev data: a path (JSONL or CSV), an open binary file in one of these formats, or mappings."""
Files: TypeAlias = Mapping[str, tuple[str, IO[bytes]]]
DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_TIMEOUT_S = 10.0  # short, so that a missing service is noticed soon even if scores take long
FIRST_WAIT_S = 0.5
MAX_SOCKET_TIMEOUT_S = 1e6  # 11 days: sockets accept no infinite timeout
# stamina logs each retry as a warning; without this handler, the default is a line on stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and the type of its parsed response. `path` begins with a slash and is quoted.

    `files` are sent as a multipart body, with `body` as its form fields. `is_json_lines`: the response is
    parsed as a tuple with one element per line. `is_idempotent`: repeating the call has no further effect.
    """

    method: str
    path: str
    kind: type[T]
    body: Mapping[str, Any] | None = None
    files: Mapping[str, Rows] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_json_lines: bool = False
    is_idempotent: bool = True

    def may_repeat(self, error: EigencalError) -> bool:
        """Return True if the call may be retried after this error.

        A timeout is never retried: the service may still be working on the first call.
        """
        # After these errors the service has certainly not begun.
        if error.code in ("connection_failed", "overloaded") or isinstance(error, RateLimitError):
            return True
        if not self.is_idempotent:
            return False
        if isinstance(error, APIStatusError):
            return error.retryable and error.status in (502, 503, 504)
        return error.code == "connection_lost"


_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


def format_path(template: str, part: str) -> str:
    """Return the path for an id. The id is quoted, so that it cannot change the path."""
    if not isinstance(part, str) or part in ("", ".", ".."):  # quote() keeps dots
        raise InvalidSetupError(f"{part!r} is no id.")
    return template.format(quote(part, safe="", errors="replace"))


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def seconds(value: float) -> float:
    """Return a time limit in seconds, which may be infinite. Raises InvalidSetupError if it is not over 0."""
    if isinstance(value, int | float) and value > 0:  # neither 0 nor a NaN
        return value
    raise InvalidSetupError(f"`timeout_s` must be a number of seconds over 0, not {value!r}.")


def retry_policy(
    may_repeat: Callable[[EigencalError], bool],
    last_start: float,
    *,
    attempts: int | None,
    longest_wait_s: float,
) -> dict[str, Any]:
    """Return the arguments of `stamina.retry_context` for retries until `last_start` (monotonic clock).

    The wait is the Retry-After if there is one, else a random time with a bound that doubles up to
    `longest_wait_s`.
    """
    backoff_s = FIRST_WAIT_S

    def wait_after(error: Exception) -> bool | float:
        nonlocal backoff_s
        if not isinstance(error, EigencalError) or not may_repeat(error):
            return False
        bound_s = min(backoff_s, longest_wait_s)
        backoff_s = 2 * bound_s
        retry_after_s = error.retry_after_s
        wait_s = random.uniform(bound_s / 2, bound_s) if retry_after_s is None else retry_after_s
        return wait_s if time.monotonic() + wait_s < last_start else False

    return {"on": wait_after, "attempts": attempts, "timeout": None}


@contextmanager
def _copied(files: Mapping[str, Rows]) -> Iterator[Files]:
    """Yield temporary copies of the files, because each attempt sends them again and their length first.

    The files are never held in memory. Raises InvalidSetupError for unreadable data.
    """
    with ExitStack() as stack:
        copies = {}
        for name, data in files.items():
            copy = stack.enter_context(tempfile.TemporaryFile())
            try:
                copies[name] = (_copy(data, copy) or f"{name}.jsonl", copy)
                copy.flush()  # the length is read from the disk
            except (OSError, EOFError, TypeError, ValueError) as error:
                raise InvalidSetupError(f"The data cannot be read: {error}") from error
        yield copies


def _copy(data: Any, to: IO[bytes]) -> str | None:
    """Copy dev data and return the name of their file, if they have one."""
    if isinstance(data, str | os.PathLike):
        with Path(data).open("rb") as file:
            return _copy(file, to)
    if hasattr(data, "read"):
        shutil.copyfileobj(data, to)
        name = getattr(data, "name", None)
        return Path(name).name if isinstance(name, str) else None
    to.writelines(json.dumps(dict(row), ensure_ascii=False).encode() + b"\n" for row in data)
    return None


class _LineDecoder:
    """Splits bytes at newlines only. httpx2 also splits at U+2028, which JSON may contain."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines completed by a chunk, without newlines; empty lines are included."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines

    def end(self) -> None:
        """Raise APIConnectionError if the body ended in the middle of a line."""
        if self._rest.strip():
            raise APIConnectionError("The answer ended in the middle of a line.")


class BaseClient(ABC, Generic[C]):
    """Configuration of a client, building of requests and parsing of responses."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 4,
        longest_wait_s: float = 30.0,
        http_client: C | None = None,
    ) -> None:
        # The environment is read here, because a program may set it after the import.
        # The base URL for OpenAI's clients ends in /v1 and names the same service.
        self._url = (url or os.environ.get("EIGENCAL_URL") or DEFAULT_URL).strip().rstrip("/")
        self._url = self._url.removesuffix("/v1")
        self._key = SecretStr((key if key is not None else os.environ.get("EIGENCAL_KEY", "")).strip())
        try:
            parsed = httpx2.URL(self._url)
        except httpx2.InvalidURL as error:
            raise InvalidSetupError(f"The URL of the service cannot be read: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InvalidSetupError(
                "The URL of the service must begin with http:// or https:// and name a host."
            )
        secret = self._key.get_secret_value()
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidSetupError(
                "The key holds characters that no key has: give it without quotes or spaces."
            )
        self._timeout_s = seconds(timeout_s)
        self._retries, self._longest_wait_s = retries, longest_wait_s
        self._owns_http = http_client is None
        self._http: C = http_client or self._connect()

    @abstractmethod
    def _connect(self) -> C: ...

    def _open(self, kind: type[C]) -> C:
        """Return an HTTP client with the environment's certificates and, except for loopback, its proxies."""
        try:
            verify = httpx2.create_ssl_context()
        except OSError as error:
            file = os.environ.get("SSL_CERT_FILE")
            raise InvalidSetupError(f"SSL_CERT_FILE={file} cannot be read: {error.strerror}.") from None
        try:
            return kind(verify=verify, trust_env=not _is_loopback(httpx2.URL(self._url).host))
        except ImportError:
            raise InvalidSetupError(
                'The environment names a SOCKS proxy, which needs `pip install "httpx2[socks]"`.'
            ) from None
        except (ValueError, httpx2.InvalidURL) as error:
            raise InvalidSetupError(f"A proxy of the environment cannot be used: {error}") from None

    @property
    def url(self) -> str:
        """URL of the service, without a trailing slash."""
        return self._url

    def __repr__(self) -> str:
        # Without user and password.
        return f"{type(self).__name__}({str(httpx2.URL(self._url).copy_with(userinfo=b''))!r})"

    def _limit_s(self, timeout_s: float | None) -> float:
        """Return the time limit of a call in seconds, by default the client's."""
        return self._timeout_s if timeout_s is None else seconds(timeout_s)

    def _retry_policy(self, call: Call[Any], ends_at: float = math.inf) -> dict[str, Any]:
        deadline_ms = (call.body or {}).get("deadline_ms")
        if isinstance(deadline_ms, int):  # the caller cannot use a later score
            ends_at = min(ends_at, time.monotonic() + deadline_ms / 1000)
        attempts, longest_wait_s = self._retries + 1, self._longest_wait_s

        def may_repeat(error: EigencalError) -> bool:
            # A retry before the Retry-After would be refused again.
            return call.may_repeat(error) and (error.retry_after_s or 0.0) <= longest_wait_s

        return retry_policy(may_repeat, ends_at, attempts=attempts, longest_wait_s=longest_wait_s)

    def _build_request(self, call: Call[Any], timeout_s: float, files: Files) -> httpx2.Request:
        """Return the request for one attempt. Raises InvalidSetupError if it cannot be sent."""
        # Set on each request, because a caller's httpx2 client may also be used for other servers.
        headers = {"User-Agent": f"eigencal-python/{__version__}", "Accept": "application/json"}
        if secret := self._key.get_secret_value():
            headers["Authorization"] = f"Bearer {secret}"
        body: dict[str, Any] = {"files": files, "data": call.body} if files else {"json": call.body}
        try:
            return self._http.build_request(
                call.method,
                self._url + call.path,
                headers={**headers, **call.headers},
                timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
                **body,
            )
        except (httpx2.InvalidURL, TypeError, ValueError, RecursionError) as error:
            raise InvalidSetupError(f"The request cannot be sent: {error}") from error

    def _parse_response(self, call: Call[T], response: httpx2.Response, content: bytes) -> T:
        """Return the parsed body. Raises the error of the response, or UnexpectedResponseError."""
        if response.is_redirect:
            # Redirects are not followed: the body would be sent twice, and the key perhaps to another host.
            to = response.headers.get("location", "")
            raise UnexpectedResponseError(
                f"{call.path} is redirected to {to}: give that URL to the client.",
                status=response.status_code,
            )
        if not response.is_success:
            raise error_of_response(response, content)
        if call.kind is NoneType:
            return cast(T, None)
        if call.kind is str:
            return cast(T, content.decode("utf-8", "replace"))
        if call.is_json_lines:
            content = b"[" + b",".join(filter(None, content.split(b"\n"))) + b"]"
        try:
            return cast(T, _adapter(call.kind).validate_json(content))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]  # locations, never contents
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise UnexpectedResponseError(
                f"{call.method} {call.path} was answered {response.status_code}, but not as the contract has "
                f"it: {where}: {first['msg']}"
            ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _left_s(ends_at: float) -> float:
    """Return the remaining seconds; never 0, which would mean no limit."""
    return min(max(ends_at - time.monotonic(), 0.001), MAX_SOCKET_TIMEOUT_S)


_TRANSPORT_ERRORS = (httpx2.RequestError, httpx2.StreamError)


class SyncAPIClient(BaseClient[httpx2.Client]):
    """Sends calls synchronously."""

    def _connect(self) -> httpx2.Client:
        http = self._open(httpx2.Client)
        # A client that nobody closes releases its sockets when it is collected.
        weakref.finalize(self, http.close)
        return http

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent. Your own `http_client` stays open."""
        if self._owns_http:
            self._http.close()

    def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Send a call, retry it if that is safe, and return the parsed response."""
        ends_at = time.monotonic() + self._limit_s(timeout_s)
        with _copied(call.files) as files:
            for attempt in stamina.retry_context(**self._retry_policy(call, ends_at)):
                with attempt:
                    return self._attempt(call, ends_at, files)
        raise AssertionError("unreachable")

    def _attempt(self, call: Call[T], ends_at: float, files: Files) -> T:
        with self._response(call, _left_s(ends_at), files) as response:
            return self._parse_response(call, response, response.read())

    @contextmanager
    def _response(self, call: Call[Any], timeout_s: float, files: Files) -> Iterator[httpx2.Response]:
        """Make one attempt at a call and yield the response, with its body unread."""
        request = self._build_request(call, timeout_s, files)
        try:
            response = self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                response.close()
        except _TRANSPORT_ERRORS as failure:
            raise error_of_transport(failure, request) from failure

    def _lines(self, call: Call[Any], silence_s: float) -> Generator[bytes, None, None]:
        """Make one attempt at a call and yield the lines of the response as they arrive, empty lines too."""
        with self._response(call, min(silence_s, MAX_SOCKET_TIMEOUT_S), {}) as response:
            if not response.is_success:
                self._parse_response(call, response, response.read())
            decoder = _LineDecoder()
            for chunk in response.iter_bytes():
                yield from decoder.feed(chunk)
            decoder.end()


class AsyncAPIClient(BaseClient[httpx2.AsyncClient]):
    """Sends calls asynchronously."""

    def _connect(self) -> httpx2.AsyncClient:
        return self._open(httpx2.AsyncClient)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; idempotent. Your own `http_client` stays open."""
        if self._owns_http:
            await self._http.aclose()

    async def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        ends_at = time.monotonic() + self._limit_s(timeout_s)
        with _copied(call.files) as files:
            async for attempt in stamina.retry_context(**self._retry_policy(call, ends_at)):
                with attempt:
                    return await self._attempt(call, ends_at, files)
        raise AssertionError("unreachable")

    async def _attempt(self, call: Call[T], ends_at: float, files: Files) -> T:
        async with self._response(call, _left_s(ends_at), files) as response:
            return self._parse_response(call, response, await response.aread())

    @asynccontextmanager
    async def _response(
        self, call: Call[Any], timeout_s: float, files: Files
    ) -> AsyncIterator[httpx2.Response]:
        request = self._build_request(call, timeout_s, files)
        try:
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                await response.aclose()
        except _TRANSPORT_ERRORS as failure:
            raise error_of_transport(failure, request) from failure

    async def _lines(self, call: Call[Any], silence_s: float) -> AsyncGenerator[bytes, None]:
        async with self._response(call, min(silence_s, MAX_SOCKET_TIMEOUT_S), {}) as response:
            if not response.is_success:
                self._parse_response(call, response, await response.aread())
            decoder = _LineDecoder()
            async for chunk in response.aiter_bytes():
                for line in decoder.feed(chunk):
                    yield line
            decoder.end()


def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the `AsyncClient` version of a method that returns `self._send(...)`."""

    @functools.wraps(method)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await cast("Coroutine[Any, Any, T]", method(self, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]", call)
