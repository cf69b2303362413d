"""The client that is awaited."""

from eigencal._async.calibrations import AsyncCalibrations
from eigencal._async.gateways import AsyncGateways
from eigencal._async.jobs import AsyncJobs
from eigencal._async.operating import AsyncOperating
from eigencal._async.scoring import AsyncScoring


class AsyncClient(AsyncScoring, AsyncJobs, AsyncCalibrations, AsyncGateways, AsyncOperating):
    """`Client`, awaited: the same names, arguments, results and errors.

    `async with`, or `await aclose()`. What yields is iterated with `async for`, without `await`. An
    `http_client` is an `httpx.AsyncClient` here, a `transport` an `httpx.AsyncBaseTransport`. Dev data are
    read from disk between two sendings, a piece of 64 KiB at a time.
    """
