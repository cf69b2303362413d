"""Bearer keys: who may score, who may calibrate."""

import hashlib
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from service.domain.errors import BadKey, MissingKey, ScopeRequired

SECURITY_SCHEMES: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
# Optional: which routes need a key depends on which keys are set.
BEARER: dict[str, Any] = {"security": [{}, {"bearer": []}]}
KEY_CODES = ("missing_key", "bad_key", "scope_required")
ADMIN_CODES = KEY_CODES
# What proxies add: one on this machine connects from loopback for callers who are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys in force; an empty one is not set. The admin key opens the scoring routes, too."""

    admin: str = field(default="", repr=False)
    score: str = field(default="", repr=False)


async def score_scope(request: Request) -> None:
    """Let a scoring request pass, or raise MissingKey, BadKey or ScopeRequired.

    Without a score key everyone may score, but no page in a browser on this machine. See `from_a_page`.
    """
    keys = _keys(request)
    if not keys.score:
        if from_a_page(request):
            raise ScopeRequired(
                "With no score key set, the service answers on loopback to its loopback names alone "
                "(Host and Origin); behind a proxy that passes on another, set a score key."
            )
    else:
        sent = _bearer(request)
        if not (_equal(sent, keys.score) or _equal(sent, keys.admin)):
            raise BadKey("The bearer key is not valid.")


async def admin_scope(request: Request) -> None:
    """Let an admin request pass, or raise MissingKey, BadKey or ScopeRequired.

    Without an admin key, callers on this machine may pass. See `on_loopback`.
    """
    keys = _keys(request)
    if not keys.admin:
        if not on_loopback(request):
            raise ScopeRequired("With no admin key set, this route answers on loopback only.")
        return
    sent = _bearer(request)
    if _equal(sent, keys.admin):
        return
    if _equal(sent, keys.score):
        raise ScopeRequired("The score key does not open this route; it needs the admin key.")
    raise BadKey("The bearer key is not valid.")


def owner_of(request: Request) -> str:
    """Return the mark of the key that a scoring request came with: what is kept under it, others do not find.

    16 hex digits of its hash, which do not give it away; "" where no score key is set. Raises MissingKey.
    """
    if not _keys(request).score:
        return ""
    return hashlib.sha256(_bearer(request).encode("latin-1", "replace")).hexdigest()[:16]


def on_loopback(request: Request) -> bool:
    """Tell whether the caller is a program on this machine that meant to call us.

    A proxy on this machine, or a page in a browser here (by its own script, or by a name that resolves to
    loopback), also connects from loopback: forwarding headers, a foreign Host or Origin give them away.
    """
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return _is_loopback(request.client.host) and _named_as_ours(request)


def from_a_page(request: Request) -> bool:
    """Tell whether a request that came over loopback may be that of a foreign page in a browser here.

    Told by our own address: that of the caller may be one that a forwarding header claims, and a page under a
    name that resolves to loopback may send such a header.
    """
    ours: str = (request.scope.get("server") or ("",))[0]
    return _is_loopback(ours) and not (_nameless(request) or _named_as_ours(request))


def _nameless(request: Request) -> bool:
    """Tell whether no host was named, as HTTP/1.0 allows.

    No page sends this: browsers speak HTTP/1.1 and always name the host, and a script cannot take it away.
    """
    old = request.scope.get("http_version") == "1.0"
    return old and "host" not in request.headers and "origin" not in request.headers


def _named_as_ours(request: Request) -> bool:
    """Tell whether Host, and Origin if there is one, name loopback."""
    origin = request.headers.get("origin")
    named = [_host(request.headers.get("host", ""))]
    return all(map(_is_loopback, named if origin is None else [*named, _host(origin.partition("//")[2])]))


def _keys(request: Request) -> Keys:
    found: Keys = request.app.state.keys
    return found


def _bearer(request: Request) -> str:
    """Return the key sent: as a bearer key, or as gateways send theirs. Raises MissingKey."""
    named = request.headers.get("x-api-key", "").strip()
    if named and "authorization" not in request.headers:
        return named
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not sent.strip():
        raise MissingKey("This route needs a bearer key: Authorization: Bearer KEY.")
    return sent.strip()


def _equal(sent: str, key: str) -> bool:
    # Bytes, since compare_digest refuses text that is not ASCII. Headers arrive as Latin-1.
    same = secrets.compare_digest(sent.encode("latin-1", "replace"), key.encode())
    return same and bool(key)  # an empty key is not set, and opens nothing


def _host(host: str) -> str:
    """Return the host of `host:port`, brackets of IPv6 and the dot that ends a full name taken off."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # ::ffff:127.0.0.1: so a socket of both families names a caller by IPv4.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
