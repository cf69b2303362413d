"""Sending, where the caller waits."""

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from eigencal._calls.call import Call
from eigencal._errors import EigencalError
from eigencal._problems import no_answer
from eigencal._sending.attempts import Attempts
from eigencal._sending.files import written
from eigencal._sending.lines import Lines
from eigencal._sending.pool import Pool
from eigencal._sending.setup import DEFAULT_TIMEOUT_S, Setup, checked, sendable
from eigencal._sending.uploads import OpenUpload

T = TypeVar("T")


class Sender:
    """Holds the connections, sends calls and repeats them."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = 4,
        longest_wait_s: float = 30.0,
        http_client: httpx.Client | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._setup = Setup.of(url, key, timeout_s, retries, longest_wait_s)
        self._owned = http_client is None
        self._pool = Pool[httpx.Client](
            lambda: http_client or httpx.Client(transport=transport),
            renews=http_client is None and transport is None,
        )
        if self._owned:
            # A client that nobody closes lets go of its sockets when it is forgotten.
            weakref.finalize(self, _let_go, self._pool)

    @property
    def _http(self) -> httpx.Client:
        return self._pool.http()

    @property
    def url(self) -> str:
        """Where the service is, without a slash at the end."""
        return self._setup.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._setup.shown_url()!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent. An `http_client` that was handed in stays open: it is yours."""
        if self._owned:
            _let_go(self._pool)

    def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Send a call, repeat it where that is safe, and return what its answer says."""
        attempts = self._setup.attempts(call, timeout_s)
        if call.upload is None:
            return self._repeated(call, attempts, None)
        with call.upload.opened() as upload:
            return self._repeated(call, attempts, upload)

    def _repeated(self, call: Call[T], attempts: Attempts, upload: OpenUpload | None) -> T:
        while True:
            try:
                return call.read(checked(self._once(call, attempts, upload)))
            except EigencalError as error:
                time.sleep(attempts.wait_after(error))

    def _once(self, call: Call[Any], attempts: Attempts, upload: OpenUpload | None) -> httpx.Response:
        parts = {} if upload is None else upload.parts(attempts)
        request = self._built(call, attempts, parts)
        try:
            response = self._http.send(request, stream=True)
            try:
                return _read(response, attempts)
            finally:
                response.close()
        except httpx.RequestError as failure:
            raise no_answer(failure, request) from failure

    def _built(self, call: Call[Any], attempts: Attempts, parts: Mapping[str, Any]) -> httpx.Request:
        with sendable():
            return self._http.build_request(**self._setup.request(call, attempts), **parts)

    @contextmanager
    def _stream(self, call: Call[Any], silence_s: float) -> Iterator[httpx.Response]:
        """Make one attempt at a call whose answer is read as it comes; may raise EigencalError meanwhile."""
        attempts = self._setup.attempts(call, silence_s)
        request = self._built(call, attempts, {})
        try:
            response = self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    _read(response, attempts)  # an error is told by its body
                yield checked(response)
            finally:
                response.close()
        except (httpx.RequestError, httpx.StreamError) as failure:
            raise no_answer(failure, request) from failure

    def _saved(self, call: Call[Any], path: str | os.PathLike[str], timeout_s: float | None) -> Path:
        """Write an answer to a file, once all of it has come, and return its path."""
        return written(self._send(call, timeout_s), path)


def _let_go(pool: Pool[httpx.Client]) -> None:
    if pool.is_here:
        pool.http().close()


class _Watched(httpx.SyncByteStream):
    """A body that is given up when the time of its call is over, however it drips."""

    def __init__(self, body: httpx.SyncByteStream, attempts: Attempts, request: httpx.Request) -> None:
        self._body, self._attempts, self._request = body, attempts, request

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            if self._attempts.over:
                raise httpx.ReadTimeout("", request=self._request)
            yield piece

    def close(self) -> None:
        self._body.close()


def _read(response: httpx.Response, attempts: Attempts) -> httpx.Response:
    """Read the whole body, in the time that the call has left, and return its response."""
    # Sockets count each wait anew: none is longer than what is left now, and after each the clock is read.
    response.request.extensions["timeout"]["read"] = attempts.left_s()
    if isinstance(response.stream, httpx.SyncByteStream):
        response.stream = _Watched(response.stream, attempts, response.request)
    response.read()
    return response


def _nobody() -> None:
    pass


def lines_of(
    response: httpx.Response, silence_s: float, heard: Callable[[], object] = _nobody
) -> Iterator[bytes]:
    """Yield the lines of an answer as they come; `heard` is told of every piece.

    Raises TimedOut where a line takes longer than `silence_s`, ConnectionLost for one that was cut.
    """
    lines = Lines(silence_s)
    for chunk in response.iter_bytes():
        heard()
        yield from lines.feed(chunk)
    yield from lines.end()
