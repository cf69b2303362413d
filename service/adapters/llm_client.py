"""HTTP to an OpenAI-compatible server: slots, retries, deadlines, streams. httpx stays behind this module."""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import stamina

from service.adapters.http_clients import tls
from service.adapters.llm_errors import RETRIED, bad_json, error_in_stream, error_of
from service.adapters.llm_wire import Completion, StreamCollector, parse_completion, prompt_texts
from service.domain.errors import DeadlineExceeded, EigencalError, LLMBadResponse, LLMUnavailable

BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
KEEPALIVE_S = 3.0  # below the 5 s after which uvicorn closes: an idle connection is never taken as it dies


class _TransientError(Exception):
    """A signal to the retry loop: another attempt may cure it; `error` is what is raised when none does."""

    def __init__(self, error: EigencalError) -> None:
        super().__init__(error.detail)
        self.error = error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call brought, whether all of it, and how long it waited for a slot."""

    completion: Completion
    missing_reason: Literal["deadline", "error"] | None
    queued_s: float


class CompletionClient:
    """One server, at most `max_concurrency` calls at once; the rest wait in order.

    `timeout_s` is the longest wait for the server's next byte, so for a whole plain answer.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
        max_retries: int = 3,
        max_concurrency: int = 64,
        proxies_from_env: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = _api_base(base_url)
        self._attempts = max_retries + 1
        self._slots = asyncio.Semaphore(max_concurrency)
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=connect_timeout_s, pool=None),
            limits=httpx.Limits(
                # Two more for the health check, which must not wait behind generations.
                max_connections=max_concurrency + 2,
                max_keepalive_connections=max_concurrency + 2,
                keepalive_expiry=KEEPALIVE_S,
            ),
            transport=transport,
            trust_env=proxies_from_env,
            verify=tls(),
        )

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._http.aclose()

    async def complete(self, path: str, body: dict[str, Any], deadline: float | None) -> Outcome:
        """Send one call and return its outcome; streamed (and then maybe partial) when the body says so.

        `deadline` is on the event loop's clock. Raises as the port's `generate`.
        """
        collector = StreamCollector()
        clock = asyncio.get_running_loop().time
        asked = clock()
        started: list[float] = []
        try:
            async with asyncio.timeout_at(deadline), self._slots:
                started.append(clock())
                completion = await _cancelled_once(self._with_retries(path, body, collector, deadline))
            return Outcome(completion, None, started[0] - asked)
        except TimeoutError:
            failure: EigencalError = DeadlineExceeded("No answer came before the deadline.")
        except httpx.RequestError as error:
            failure = _broken(error)
        except EigencalError as error:
            failure = error
        partial = collector.completion()
        if not partial.choices:
            raise failure
        reason: Literal["deadline", "error"] = (
            "deadline" if isinstance(failure, DeadlineExceeded) else "error"
        )
        return Outcome(partial, reason, started[0] - asked)

    async def get(self, url: str, timeout_s: float) -> tuple[int, Any]:
        """Return status and JSON (None when it is none) of a GET; raises LLMUnavailable."""
        try:
            response = await self._http.get(url, timeout=timeout_s)
        except httpx.HTTPError:
            raise LLMUnavailable("The LLM server cannot be reached.") from None
        try:
            return response.status_code, response.json()
        except ValueError:
            return response.status_code, None

    async def _with_retries(
        self, path: str, body: dict[str, Any], collector: StreamCollector, deadline: float | None
    ) -> Completion:
        clock = asyncio.get_running_loop().time
        failures = 0

        def delay_s(error: Exception) -> float | bool:
            nonlocal failures
            if not isinstance(error, _TransientError):
                return False
            delay = _backoff_s(failures, error.error.retry_after_s)
            failures += 1
            in_time = deadline is None or clock() + delay < deadline
            return delay if in_time and delay <= MAX_BACKOFF_S else False

        try:
            async for attempt in stamina.retry_context(on=delay_s, attempts=self._attempts, timeout=None):
                with attempt:
                    return await self._attempt(path, body, collector)
        except _TransientError as failure:
            raise failure.error from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(self, path: str, body: dict[str, Any], collector: StreamCollector) -> Completion:
        async with self._post(path, body) as response:
            if response.status_code != 200:
                raise await _refusal(response, body)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return await _read_stream(response, body, collector)
            try:
                payload = json.loads(await response.aread())
            except ValueError:
                raise bad_json() from None
            return parse_completion(payload)

    @asynccontextmanager
    async def _post(self, path: str, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream("POST", self.base_url + path, json=body) as response:
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise _TransientError(LLMUnavailable("The LLM server cannot be reached.")) from None


async def _cancelled_once(work: Coroutine[Any, Any, Completion]) -> Completion:
    """Await a call in a task of its own, which is cancelled once however often the caller is.

    A second cancellation would break off the closing of the connection, and the pool would count it as taken
    for ever: a few dozen hang-ups, and no call would get through any more.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


async def _read_stream(
    response: httpx.Response, body: dict[str, Any], collector: StreamCollector
) -> Completion:
    async for line in _lines(response):
        told = collector.feed(line)
        if told is not None:
            raise error_in_stream(told, prompt_texts(body))
    if not collector.done:
        raise LLMUnavailable("The LLM server broke off its answer.")
    completion = collector.completion()
    if not completion.choices:
        raise LLMBadResponse("The LLM server's answer holds no choices.")
    return completion


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield lines cut at newlines alone: httpx cuts at U+2028 and its like too, which JSON may hold as is."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    yield rest.decode("utf-8", "replace")


async def _refusal(response: httpx.Response, body: dict[str, Any]) -> Exception:
    content = await response.aread()
    wait_s = _retry_after_s(response)
    error = error_of(response.status_code, content, prompt_texts(body), retry_after_s=wait_s)
    return _TransientError(error) if response.status_code in RETRIED else error


def _broken(error: httpx.RequestError) -> EigencalError:
    if isinstance(error, httpx.DecodingError):
        return LLMBadResponse("The LLM server's answer cannot be decoded.")
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded("The LLM server did not answer in time.")
    return LLMUnavailable("The LLM server broke off its answer.")


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return Retry-After where it is a number of seconds; dates are rare and left aside."""
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _backoff_s(failures: int, retry_after_s: float | None) -> float:
    """Return what the server asked for, or an exponential backoff with full jitter."""
    if retry_after_s is not None:
        return retry_after_s
    return min(MAX_BACKOFF_S, BACKOFF_S * 2.0**failures) * random.uniform(0.5, 1.0)


def _api_base(url: str) -> str:
    """Return the URL without trailing slash, with /v1 when it names a bare host; raises ValueError."""
    try:
        parsed, url = httpx.URL(url), url.rstrip("/")
    except httpx.InvalidURL as error:
        raise ValueError(f"The LLM server's URL cannot be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The LLM server's URL must start with http:// or https://.")
    return url if parsed.path.strip("/") else f"{url}/v1"
