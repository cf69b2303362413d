"""The client that waits."""

from eigencal._sync.calibrations import Calibrations
from eigencal._sync.gateways import Gateways
from eigencal._sync.jobs import Jobs
from eigencal._sync.operating import Operating
from eigencal._sync.scoring import Scoring


class Client(Scoring, Jobs, Calibrations, Gateways, Operating):
    """A client of the service; a context manager that closes its connections, or call `close`.

    It may be used by several threads, and after a fork by the new process, which gets connections of its own.
    Calls that are safe to repeat are repeated after failures that pass:
    nobody answers, the connection broke off, 429, and 502, 503 and 504 that the service calls retryable;
    after the time that a Retry-After asks for, else after 0.5 s, 1 s, 2 s ... Never after a time limit.

    Args:
        url: Where the service is; None: `EIGENCAL_URL`, or http://127.0.0.1:8000.
        key: The bearer key; None: `EIGENCAL_KEY`, or none.
        timeout_s: Seconds that a call may take in all, repeats included, if it has no `timeout_s` of its own:
            over 0; `math.inf` is no limit.
        retries: How often a call is repeated at most; 0: never.
        longest_wait_s: Seconds to wait before a repeat at most; a service that asks for more gets none.
        http_client: An `httpx.Client` of your own, for proxies, certificates and the like; you close it.
        transport: An httpx transport in place of sockets.

    Raises:
        InvalidSetup: The URL or the key cannot be one.
    """
