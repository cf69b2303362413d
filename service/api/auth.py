"""Who may call: keys and scopes; whether a request comes from this machine, a page, or elsewhere."""

import hashlib
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from service.api.keys import KeyRing, Scope
from service.errors import BadKey, MissingKey, ScopeRequired

# What proxies add: one on this machine connects from loopback for callers who are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


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


# Bearer keys: who may score, who may calibrate.

SECURITY_SCHEMES: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
# Optional: which routes need a key depends on which keys there are.
BEARER: dict[str, Any] = {"security": [{}, {"bearer": []}]}
# The store is asked for a key that is not known.
KEY_CODES = ("missing_key", "bad_key", "scope_required", "store_unavailable")
ADMIN_CODES = KEY_CODES


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys in force: those of the settings, where an empty one is not set, and those `made` by the API.

    An admin key opens the scoring routes, too.
    """

    admin: str = field(default="", repr=False)
    score: str = field(default="", repr=False)
    made: KeyRing | None = field(default=None, repr=False, compare=False)

    def closed(self, scope: Scope) -> bool:
        """Tell whether the routes of a scope need a key: one is set for it, or was ever made."""
        is_set = self.admin if scope == "admin" else self.score
        return bool(is_set) or (self.made is not None and self.made.closed(scope))

    async def scope_of(self, sent: str) -> Scope | None:
        """Return what a key opens; None if nothing. Raises StoreUnavailable; see `KeyRing.scope_of`."""
        if _equal(sent, self.admin):
            return "admin"
        if _equal(sent, self.score):
            return "score"
        return None if self.made is None else await self.made.scope_of(sent)

    def name_of(self, sent: str) -> str:
        """Return how a key that opens something is told to people: never the key itself."""
        if _equal(sent, self.admin) or _equal(sent, self.score):
            return "settings key"
        made = None if self.made is None else self.made.find(sent)
        return "" if made is None else f"{made.id} ({made.name})"


async def score_scope(request: Request) -> None:
    """Let a scoring request pass, or raise MissingKey, BadKey, ScopeRequired or StoreUnavailable.

    Without a score key everyone may score, but no page in a browser on this machine. See `from_a_page`.
    """
    keys = keys_of(request)
    request.state.owner = ""
    if keys.closed("score"):
        sent = _bearer(request)
        if await keys.scope_of(sent) not in ("score", "admin"):
            raise BadKey("The bearer key is not valid.")
        request.state.owner = _mark(sent)
    elif from_a_page(request):
        raise ScopeRequired(
            "With no score key set, the service answers on loopback to its loopback names alone "
            "(Host and Origin); behind a proxy that passes on another, set a score key."
        )


async def admin_scope(request: Request) -> None:
    """Let an admin request pass, or raise MissingKey, BadKey, ScopeRequired or StoreUnavailable.

    Without an admin key, callers on this machine may pass. See `on_loopback`.
    """
    keys = keys_of(request)
    request.state.by = "no key"
    if not keys.closed("admin"):
        if not on_loopback(request):
            raise ScopeRequired("With no admin key set, this route answers on loopback only.")
        return
    opened = await keys.scope_of(_bearer(request))
    if opened is None:
        raise BadKey("The bearer key is not valid.")
    if opened != "admin":
        raise ScopeRequired("A score key does not open this route; it needs an admin key.")
    request.state.by = keys.name_of(_bearer(request))


def owner_of(request: Request) -> str:
    """Return the mark of the key that a scoring request came with: what is kept under it, others do not find.

    16 hex digits of its hash, which do not give it away; "" where scoring needed no key when it came in: the
    first key may be made, or this one be revoked, while the request is at work.
    """
    owner: str = request.state.owner
    return owner


def keys_of(request: Request) -> Keys:
    """Return the keys of the application that got the request."""
    found: Keys = request.app.state.keys
    return found


def _mark(sent: str) -> str:
    return hashlib.sha256(sent.encode("latin-1", "replace")).hexdigest()[:16]


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
