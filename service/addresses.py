"""URLs of LLM and embedding servers, and the TLS context of the environment."""

import os
import ssl
from functools import cache, lru_cache
from ipaddress import ip_address

import certifi
import httpx2

MAX_PORT = 65_535


def api_base(url: str, setting: str) -> httpx2.URL:
    """Return the base URL of an OpenAI-compatible API.

    A host without a path gets /v1. An endpoint such as /v1/chat/completions is cut to its base. Any other
    path and the query stay as they are. Raises ValueError; `setting` names the variable in the message.
    """
    if any(character.isspace() for character in url) or not url.isprintable():
        raise ValueError(f"{setting} contains white space or characters that cannot be seen.")
    if "#" in url:
        raise ValueError(f"{setting} contains a fragment (#), which no server receives.")
    try:
        base = httpx2.URL(url)
        base.host.encode("idna")
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ValueError(f"{setting} cannot be read: {error}.") from None
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) > MAX_PORT:
        raise ValueError(f"{setting} must start with http:// or https:// and name a host.")
    path, question_mark, query = base.raw_path.partition(b"?")
    path = path.rstrip(b"/")
    if path:
        for endpoint in (b"/chat/completions", b"/completions", b"/embeddings"):
            path = path.removesuffix(endpoint)
    else:
        path = b"/v1"
    return base.copy_with(raw_path=(path or b"/") + question_mark + query)


@lru_cache(maxsize=64)
def endpoint(base: httpx2.URL, path: str) -> httpx2.URL:
    """Return the URL of an API path below the base. The query of the path precedes the query of the base."""
    root, _, query = base.raw_path.partition(b"?")
    own_path, _, own_query = path.encode().partition(b"?")
    queries = b"&".join(filter(None, (own_query, query)))
    return base.copy_with(raw_path=root.rstrip(b"/") + own_path + (b"?" + queries if queries else b""))


@cache
def tls() -> ssl.SSLContext:
    """Return the TLS context, which honours SSL_CERT_FILE and SSL_CERT_DIR. Raises ValueError."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    except OSError as error:
        raise ValueError(f"SSL_CERT_FILE={file} cannot be read: {error.strerror or error}.") from None


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address or `localhost`."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # ::ffff:127.0.0.1, the form of an IPv4 caller on a socket for both families.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
