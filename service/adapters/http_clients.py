"""What the clients of other servers have in common: certificates, what is tried again, and when."""

import math
import ssl
from http import HTTPStatus

import httpx

KEEPALIVE_S = 3.0  # below the 5 s after which uvicorn closes: an idle connection is never taken as it dies
# What may pass by itself. Not 400, which comes again; not 500, which may have been caused by the request.
TRY_AGAIN = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


def tls() -> ssl.SSLContext:
    """Return what httpx checks certificates with: SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's.

    Made here because httpx would leave out the two along with the environment's proxies.
    """
    return httpx.create_ssl_context(trust_env=True)


def retry_after_s(response: httpx.Response) -> float | None:
    """Return Retry-After where it is a number of seconds, at least 0; dates are rare and left aside."""
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None  # "nan" and "inf" are numbers to Python
