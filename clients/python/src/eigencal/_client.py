"""The synchronous and the asynchronous client."""

from eigencal.resources.calibrations import AsyncCalibrations, Calibrations
from eigencal.resources.chat import AsyncChat, Chat
from eigencal.resources.jobs import AsyncJobs, Jobs
from eigencal.resources.scores import AsyncScores, Scores
from eigencal.resources.service import AsyncService, Service


class Client(Scores, Jobs, Calibrations, Chat, Service):
    """A synchronous client of the service. Use it as a context manager, or call `close`.

    Threads may share a client; a forked process needs its own.
    Calls that are safe to repeat are retried after transient failures: connection errors, 429, and 502, 503
    and 504 that the service marks as retryable. The client waits for the time given by Retry-After, else
    0.5 s, 1 s, 2 s ... A call that timed out is never retried.

    Args:
        url: URL of the service; None: `EIGENCAL_URL`, or http://127.0.0.1:8000.
        key: The bearer key; None: `EIGENCAL_KEY`, or none.
        timeout_s: Default time limit of a call in seconds, over 0, until the response begins, retries
            included; `math.inf`: no limit. Each call can override it.
        retries: Maximum number of retries of a call; 0: none.
        longest_wait_s: Maximum wait before a retry in seconds; a longer Retry-After ends the call.
        http_client: Your own `httpx2.Client`, for example with a proxy or certificates. You close it.

    Raises:
        InvalidSetupError: The URL or the key is malformed.
    """


class AsyncClient(AsyncScores, AsyncJobs, AsyncCalibrations, AsyncChat, AsyncService):
    """The asynchronous `Client`, with the same names, arguments, results and errors.

    Use `async with`, or `await aclose()`. Iterate over generator methods with `async for`, without `await`.
    `http_client` is an `httpx2.AsyncClient`. Copying dev data blocks the event loop.
    """
