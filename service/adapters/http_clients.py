"""What all clients of other servers have in common: of the environment, httpx reads what it is told to."""

import ssl

import httpx


def tls() -> ssl.SSLContext:
    """Return what httpx checks certificates with: SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's.

    Made here because httpx would leave out the two along with the environment's proxies.
    """
    return httpx.create_ssl_context(trust_env=True)
