"""Sending, awaited."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
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


class AsyncSender:
    """Holds the connections, sends calls and repeats them."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = 4,
        longest_wait_s: float = 30.0,
        http_client: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._setup = Setup.of(url, key, timeout_s, retries, longest_wait_s)
        self._owned = http_client is None
        self._pool = Pool[httpx.AsyncClient](
            lambda: http_client or httpx.AsyncClient(transport=transport),
            renews=http_client is None and transport is None,
        )

    @property
    def _http(self) -> httpx.AsyncClient:
        return self._pool.http()

    @property
    def url(self) -> str:
        """Where the service is, without a slash at the end."""
        return self._setup.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._setup.shown_url()!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; idempotent. An `http_client` that was handed in stays open: it is yours."""
        if self._owned and self._pool.is_here:
            await self._http.aclose()

    async def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Send a call, repeat it where that is safe, and return what its answer says."""
        attempts = self._setup.attempts(call, timeout_s)
        if call.upload is None:
            return await self._repeated(call, attempts, None)
        with call.upload.opened() as upload:
            return await self._repeated(call, attempts, upload)

    async def _repeated(self, call: Call[T], attempts: Attempts, upload: OpenUpload | None) -> T:
        while True:
            try:
                return call.read(checked(await self._once(call, attempts, upload)))
            except EigencalError as error:
                await asyncio.sleep(attempts.wait_after(error))

    async def _once(self, call: Call[Any], attempts: Attempts, upload: OpenUpload | None) -> httpx.Response:
        parts = {} if upload is None else upload.parts(attempts)
        request = self._built(call, attempts, parts)
        try:
            async with _within(attempts, request):
                return await self._http.send(request)
        except httpx.RequestError as failure:
            raise no_answer(failure, request) from failure

    def _built(self, call: Call[Any], attempts: Attempts, parts: Mapping[str, Any]) -> httpx.Request:
        with sendable():
            return self._http.build_request(**self._setup.request(call, attempts), **parts)

    @asynccontextmanager
    async def _stream(self, call: Call[Any], silence_s: float) -> AsyncIterator[httpx.Response]:
        """Make one attempt at a call whose answer is read as it comes; may raise EigencalError meanwhile."""
        attempts = self._setup.attempts(call, silence_s)
        request = self._built(call, attempts, {})
        try:
            async with _within(attempts, request):
                response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    async with _within(attempts, request):
                        await response.aread()  # an error is told by its body
                yield checked(response)
            finally:
                await response.aclose()
        except (httpx.RequestError, httpx.StreamError) as failure:
            raise no_answer(failure, request) from failure

    async def _saved(self, call: Call[Any], path: str | os.PathLike[str], timeout_s: float | None) -> Path:
        """Write an answer to a file, once all of it has come, and return its path."""
        return written(await self._send(call, timeout_s), path)


@asynccontextmanager
async def _within(attempts: Attempts, request: httpx.Request) -> AsyncIterator[None]:
    """Break off what the block awaits when the time of the call is over, however its answer drips."""
    try:
        async with asyncio.timeout(attempts.left_s()):
            yield
    except TimeoutError as error:
        raise httpx.ReadTimeout("", request=request) from error


def _nobody() -> None:
    pass


async def lines_of(
    response: httpx.Response, silence_s: float, heard: Callable[[], object] = _nobody
) -> AsyncIterator[bytes]:
    """Do as `lines_of` of the client that waits does, awaited."""
    lines = Lines(silence_s)
    async for chunk in response.aiter_bytes():
        heard()
        for line in lines.feed(chunk):
            yield line
    for line in lines.end():
        yield line
