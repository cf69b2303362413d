"""Who may call: keys, their scopes, and whether a request comes from this machine or a page on it."""

import asyncio
import hashlib
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastapi import Request

from service.errors import BadKey, MissingKey, ScopeRequired, StoreUnavailable
from service.ids import new_id
from service.sharing import OWNER

if TYPE_CHECKING:
    from service.store.keys import SqlKeys

log = logging.getLogger(__name__)
Scope = Literal["score", "admin"]
State = Literal["valid", "expired", "revoked"]

START = "eigencal_"  # by which people, and scanners for leaked secrets, know a key of ours
_RANDOM_BYTES = 32
_SHOWN = len(START) + 6
_LENGTH = len(START) + 43  # 32 bytes are 43 characters of base 64


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored.

    `digest`: SHA-256 of the key, 64 hex digits. Of a random key of 256 bits it gives nothing away, and needs
    no salt. `prefix`: the first characters of the key, which may be shown. Times are in UTC.
    """

    id: str
    name: str
    scope: Scope
    prefix: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def state(self, now: datetime) -> State:
        """Return whether it opens anything at this time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


def new_key(name: str, scope: Scope, expires_at: datetime | None, now: datetime) -> tuple[Key, str]:
    """Return a new key for the store, and the secret itself, which is kept nowhere."""
    secret = START + secrets.token_urlsafe(_RANDOM_BYTES)
    made = Key(new_id("key"), name, scope, secret[:_SHOWN], digest_of(secret), now, expires_at)
    return made, secret


def digest_of(secret: str) -> str:
    """Return what is stored of a key. Headers arrive as Latin-1."""
    return hashlib.sha256(secret.encode("latin-1", "replace")).hexdigest()


MAX_KEYS = 500  # of each scope: all of them are in the memory of every replica


POLL_S = 2.0
GAP_S = 0.5


class Keys:
    """The keys in force: `admin` and `score` of the settings (empty: not set), and those made by the API.

    An admin key opens the scoring routes, too. Made keys are in memory, read anew every `POLL_S` seconds. A
    known key never waits for the store: a valid one goes on being so while the store is down, one that was
    revoked or has expired is refused at once. One that is not known may have been made on another replica a
    moment ago: the store is asked, for all of them at once and not more often than every `GAP_S` seconds,
    however many wrong keys come. `clock`: the time by which keys expire. `host`: where the service listens,
    which without a score key must be on loopback; None: anywhere.
    """

    def __init__(
        self,
        store: "SqlKeys",
        *,
        admin: str = "",
        score: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        host: str | None = None,
    ) -> None:
        self.store = store
        self._host = host
        self.admin = admin
        self._score = score
        self.now = clock
        self._keys: dict[str, Key] = {}  # by digest: how long a look-up takes tells nothing of a secret
        self._closed: set[Scope] = set()
        self._is_failing = False
        self._began = float("-inf")  # the latest reading, by time.monotonic()
        self._reading = asyncio.Lock()
        self._poll: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys and follow the store. Raises StoreUnavailable; PermissionError if strangers may."""
        await self._read()
        if self._host is not None and not is_loopback(self._host) and not self.closed("score"):
            raise PermissionError(
                f"EIGENCAL_HOST={self._host} is reached from elsewhere, and scoring takes no key: whoever "
                "finds the service could use the LLM. Set EIGENCAL_SCORE_KEY; or, behind a gate of your own, "
                "EIGENCAL_ALLOW_OPEN=true."
            )
        self._poll = asyncio.create_task(self._polling(), name="keys")

    async def stop(self) -> None:
        """Follow the store no more; idempotent."""
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.cancel()
            await asyncio.wait({poll})

    def closed(self, scope: Scope) -> bool:
        """Tell whether the routes of a scope need a key, for good: one is set for it, or was ever made."""
        return bool(self.admin if scope == "admin" else self._score) or scope in self._closed

    async def scope_of(self, secret: str) -> Scope | None:
        """Return what a key opens; None for one that is not valid.

        Raises StoreUnavailable for one that is not known here while the store cannot be asked: it may be
        valid, and a caller who is told that it is not would give it up.
        """
        if _equal(secret, self.admin):
            return "admin"
        if _equal(secret, self._score):
            return "score"
        digest = digest_of(secret)
        # Nothing but the form of a key that was made here is worth a query.
        if digest not in self._keys and secret.startswith(START) and len(secret) == _LENGTH:
            await self._news()
        key = self._keys.get(digest)
        return key.scope if key is not None and key.state(self.now()) == "valid" else None

    async def make(self, name: str, scope: Scope, expires_at: datetime | None) -> tuple[Key, str]:
        """Make a key and return it with the secret. Raises Conflict, StoreUnavailable."""
        made, secret = new_key(name, scope, expires_at, self.now())
        await self.store.add(made)
        self._keys[made.digest] = made
        self._closed.add(scope)
        # Escaped: a name may hold anything, line feeds included.
        log.info("key %s was made: %r, scope %s, expires %s", made.id, name, scope, expires_at or "never")
        return made, secret

    async def revoke(self, key_id: str) -> Key | None:
        """Revoke a key, here at once; None when there is no such key. Raises StoreUnavailable."""
        key = await self.store.revoke(key_id, self.now())
        if key is not None:
            log.info("key %s was revoked: %r, scope %s", key.id, key.name, key.scope)
            try:
                await self._read()
            finally:  # also where a reading that began before brings it again, and this one fails
                self._keys.pop(key.digest, None)
        return key

    def name_of(self, secret: str) -> str:
        """Return how a key that opens something is told to people: never the key itself."""
        made = self._keys.get(digest_of(secret))
        return "settings key" if made is None else f"{made.id} ({made.name})"

    async def _news(self) -> None:
        """Return after a reading that began after this call. Raises StoreUnavailable."""
        asked = time.monotonic()
        async with self._reading:
            if self._began < asked and not self._is_failing:
                await asyncio.sleep(self._began + GAP_S - time.monotonic())
                with suppress(Exception):  # told below, and logged by the poll
                    await self._take()
        if self._is_failing:  # the poll will notice when the store is back: no query for every wrong key
            raise StoreUnavailable(
                "This key is not known here, and the store cannot be asked for it.", retry_after_s=POLL_S
            )

    async def _read(self) -> None:
        async with self._reading:
            await self._take()

    async def _take(self) -> None:
        """Take over what the store knows. Raises StoreUnavailable, which was logged."""
        self._began = time.monotonic()
        try:
            keys = await self.store.list_all()
        except Exception:
            self._is_failing = True
            raise
        self._is_failing = False
        self._keys = {key.digest: key for key in keys}
        self._closed.update(key.scope for key in keys)
        if self.store.has_unreadable:  # an unreadable key may be the only one of its scope
            self._closed.update(get_args(Scope))

    async def _polling(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self._read()
            except StoreUnavailable:
                continue  # the last known keys go on being valid
            except Exception:
                log.exception("the keys cannot be read")


SECURITY_SCHEMES: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
# Optional: which routes need a key depends on which keys there are.
BEARER: dict[str, Any] = {"security": [{}, {"bearer": []}]}
# The store is asked for a key that is not known.
KEY_CODES = ("missing_key", "bad_key", "scope_required", "store_unavailable")


# What proxies add: one on this machine connects from loopback for callers who are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def on_loopback(request: Request) -> bool:
    """Tell whether the caller is a program on this machine that meant to call us.

    A proxy on this machine, or a page in a browser here (by its own script, or by a name that resolves to
    loopback), also connects from loopback: forwarding headers, a foreign Host or Origin give them away.
    """
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(request.client.host) and _named_as_ours(request)


def from_a_page(request: Request) -> bool:
    """Tell whether a request that came over loopback may be that of a foreign page in a browser here.

    Told by our own address: the caller's may be one that a forwarding header claims.
    """
    ours: str = (request.scope.get("server") or ("",))[0]
    return is_loopback(ours) and not _named_as_ours(request)


def _named_as_ours(request: Request) -> bool:
    """Tell whether Host, and Origin if there is one, name loopback."""
    origin = request.headers.get("origin")
    named = [_host(request.headers.get("host", ""))]
    return all(map(is_loopback, named if origin is None else [*named, _host(origin.partition("//")[2])]))


def _host(host: str) -> str:
    """Return the host of `host:port`, brackets of IPv6 and the dot that ends a full name taken off."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine's own: an address of loopback, or `localhost`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # ::ffff:127.0.0.1: so a socket of both families names a caller by IPv4.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


async def score_scope(request: Request) -> None:
    """Let a scoring request pass, or raise MissingKey, BadKey, ScopeRequired or StoreUnavailable.

    Without a score key everyone may score, but no page in a browser on this machine.
    """
    keys = keys_of(request)
    request.state.owner = ""
    if keys.closed("score"):
        sent = _bearer(request)
        if await keys.scope_of(sent) not in ("score", "admin"):
            raise BadKey("The bearer key is not valid.")
        request.state.owner = digest_of(sent)[:16]
    elif from_a_page(request):
        raise ScopeRequired(
            "With no score key set, the service answers on loopback to its loopback names alone "
            "(Host and Origin); behind a proxy that passes on another, set a score key."
        )
    OWNER.set(request.state.owner)


async def admin_scope(request: Request) -> None:
    """Let an admin request pass, or raise MissingKey, BadKey, ScopeRequired or StoreUnavailable.

    Without an admin key, callers on this machine may pass.
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
    """Return the mark of a scoring request's key, 16 hex digits: what is kept under it, others do not find.

    "" where scoring needed no key when it came in.
    """
    owner: str = request.state.owner
    return owner


def keys_of(request: Request) -> Keys:
    """Return the keys of the application that got the request."""
    keys: Keys = request.app.state.keys
    return keys


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
