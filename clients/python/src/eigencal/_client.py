"""The clients: one that waits, and one that is awaited."""

from eigencal.resources.calibrations import AsyncCalibrations, Calibrations
from eigencal.resources.chat import AsyncChat, Chat
from eigencal.resources.jobs import AsyncJobs, Jobs
from eigencal.resources.scores import AsyncScores, Scores
from eigencal.resources.service import AsyncService, Service


class Client(Scores, Jobs, Calibrations, Chat, Service):
    """A client of the service; a context manager that closes its connections, or call `close`.

    It may be used by several threads; after a fork, make a new one.
    Calls that are safe to repeat are repeated after failures that pass:
    nobody answers, the connection broke off, 429, and 502, 503 and 504 that the service calls retryable;
    after the time that a Retry-After asks for, else after 0.5 s, 1 s, 2 s ... Never after a time limit.

    Args:
        url: Where the service is; None: `EIGENCAL_URL`, or http://127.0.0.1:8000.
        key: The bearer key; None: `EIGENCAL_KEY`, or none.
        timeout_s: Seconds until the answer of a call begins, repeats included, if it has no `timeout_s` of
            its own: over 0; `math.inf` is no limit.
        retries: How often a call is repeated at most; 0: never.
        longest_wait_s: Seconds to wait before a repeat at most; a service that asks for more gets none.
        http_client: An `httpx2.Client` of your own, for proxies, certificates and the like; you close it.

    Raises:
        InvalidSetupError: The URL or the key cannot be one.
    """


class AsyncClient(AsyncScores, AsyncJobs, AsyncCalibrations, AsyncChat, AsyncService):
    """`Client`, awaited: the same names, arguments, results and errors.

    `async with`, or `await aclose()`. What yields is iterated with `async for`, without `await`. An
    `http_client` is an `httpx2.AsyncClient` here. Dev data are copied without giving up the event loop.
    """
