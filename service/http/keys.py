"""Keys of the settings and of the store, and the callers that need none."""

import asyncio
import base64
import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, get_args

from fastapi import Depends
from starlette.requests import Request

from service.errors import BadKey, MissingKey, ScopeRequired, StoreUnavailable
from service.ids import new_id
from service.llm.connection import is_loopback
from service.store.keys import Key, Scope, SqlKeys

log = logging.getLogger(__name__)

START = "eigencal_"  # identifies our keys to people and to scanners for leaked secrets
_RANDOM_BYTES = 32
_SHOWN = len(START) + 6
_LENGTH = len(START) + 43  # 32 bytes are 43 characters in base 64


def new_key(name: str, scope: Scope, expires_at: datetime | None, now: datetime) -> tuple[Key, str]:
    """Return a new key for the store, and the secret, which is not stored."""
    secret = START + secrets.token_urlsafe(_RANDOM_BYTES)
    made = Key(new_id("key"), name, scope, secret[:_SHOWN], digest_of(secret), now, expires_at)
    return made, secret


def digest_of(secret: str) -> str:
    """Return the digest of a secret, 64 hex digits. Headers arrive as Latin-1."""
    return hashlib.sha256(secret.encode("latin-1", "replace")).hexdigest()


POLL_S = 2.0
GAP_S = 0.5


class Keys:
    """The keys in force: `admin` and `score` from the settings (empty: not set), and keys made by the API.

    An admin key also opens the scoring routes. Keys made by the API are in memory and are reloaded every
    `POLL_S` seconds. A known key never waits for the store: a valid key stays valid while the store is down,
    and a revoked or expired key is refused at once. An unknown key may just have been made on another
    replica, so the store is asked; one query answers all unknown keys, at most one every `GAP_S` seconds.

    `clock`: the time for the expiry of keys. `host`: the address that the service listens on. Without a score
    key it must be on loopback; None allows any.
    """

    def __init__(
        self,
        store: SqlKeys,
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
        self._keys: dict[str, Key] = {}  # by digest: the time of a look-up reveals nothing about a secret
        self._closed: set[Scope] = set()
        self._is_failing = False
        self._began = float("-inf")  # start of the latest reading, by time.monotonic()
        self._reading = asyncio.Lock()
        self._poll: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys and start polling the store.

        Raises StoreUnavailable, and PermissionError if anyone on the network could score without a key.
        """
        await self._read()
        if self._host is not None and not is_loopback(self._host) and not self.closed("score"):
            raise PermissionError(
                f"EIGENCAL_HOST={self._host} is reachable from other machines, and scoring needs no key: "
                "anyone who finds the service could use the LLM. Set EIGENCAL_SCORE_KEY; or, behind your own "
                "access control, EIGENCAL_ALLOW_OPEN=true."
            )
        self._poll = asyncio.create_task(self._polling(), name="keys")

    async def stop(self) -> None:
        """Stop polling the store. Idempotent."""
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.cancel()
            await asyncio.wait({poll})

    def closed(self, scope: Scope) -> bool:
        """Return True if the routes of a scope need a key: one is set, or one was ever made."""
        return bool(self.admin if scope == "admin" else self._score) or scope in self._closed

    async def scope_of(self, secret: str) -> Scope | None:
        """Return the scope of a key; None if it is not valid.

        Raises StoreUnavailable for an unknown key while the store is unavailable. The key may be valid, and
        its caller would give it up after a refusal.
        """
        if _equal(secret, self.admin):
            return "admin"
        if _equal(secret, self._score):
            return "score"
        digest = digest_of(secret)
        # Only a text with the form of our keys is worth a query.
        if digest not in self._keys and secret.startswith(START) and len(secret) == _LENGTH:
            await self._news()
        key = self._keys.get(digest)
        return key.scope if key is not None and key.state(self.now()) == "valid" else None

    async def make(self, name: str, scope: Scope, expires_at: datetime | None) -> tuple[Key, str]:
        """Make a key and return it with the secret. Raises StoreUnavailable."""
        made, secret = new_key(name, scope, expires_at, self.now())
        await self.store.add(made)
        self._keys[made.digest] = made
        self._closed.add(scope)
        # Escaped: a name may contain any characters, including line feeds.
        log.info("key %s was made: %r, scope %s, expires %s", made.id, name, scope, expires_at or "never")
        return made, secret

    async def revoke(self, key_id: str) -> Key | None:
        """Revoke a key, at once on this replica; None if there is no such key. Raises StoreUnavailable."""
        key = await self.store.revoke(key_id, self.now())
        if key is not None:
            log.info("key %s was revoked: %r, scope %s", key.id, key.name, key.scope)
            async with self._reading:  # a reading that began earlier may restore the key
                self._keys.pop(key.digest, None)
        return key

    async def admit(self, request: Request, scope: Scope) -> str:
        """Let a request to the routes of a scope pass, and return its caller.

        The caller is, for `score`, 16 hex digits of the key's digest, or "" if no key is needed; for `admin`,
        the name of the key (without the key itself) or "no key". Without a score key, all callers may score,
        except web pages in a browser on this machine. Without an admin key, only callers on this machine may
        use the admin routes.

        Raises MissingKey, BadKey, ScopeRequired or StoreUnavailable.
        """
        if not self.closed(scope) and scope == "admin":
            if not on_loopback(request):
                raise ScopeRequired("Without an admin key, this route accepts only requests on loopback.")
            return "no key"
        if not self.closed(scope):
            # The service's own address: the caller's may be from a forwarding header.
            own_address = (request.scope.get("server") or ("",))[0]
            if is_loopback(own_address) and not _named_as_ours(request):
                raise ScopeRequired(
                    "Without a score key, the service accepts only requests on loopback under loopback names "
                    "(headers Host and Origin). Behind a proxy that forwards another name, set a score key."
                )
            return ""
        secret = _secret(request)
        own_scope = await self.scope_of(secret)
        if own_scope is None:
            raise BadKey("The bearer key is not valid.")
        digest = digest_of(secret)
        if scope == "score":
            return digest[:16]
        if own_scope != "admin":
            raise ScopeRequired("This route needs an admin key, not a score key.")
        made = self._keys.get(digest)
        return "settings key" if made is None else f"{made.id} ({made.name})"

    async def _news(self) -> None:
        """Return after a reading that began after this call. Raises StoreUnavailable."""
        called = time.monotonic()
        async with self._reading:
            if self._began < called and not self._is_failing:
                await asyncio.sleep(self._began + GAP_S - time.monotonic())
                with suppress(Exception):  # raised below, and logged by the poll
                    await self._read()
        if self._is_failing:  # the poll notices when the store is back: no query for every wrong key
            raise StoreUnavailable(
                "This replica does not know the key, and the store cannot be reached.", retry_after_s=POLL_S
            )

    async def _read(self) -> None:
        """Load the keys from the store. Raises StoreUnavailable, which is already logged."""
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
                async with self._reading:
                    await self._read()
            except StoreUnavailable:
                continue  # the last known keys stay valid
            except Exception:
                log.exception("the keys cannot be read")


# Headers that proxies add. A proxy on this machine connects from loopback for remote callers.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def on_loopback(request: Request) -> bool:
    """Return True if the caller is a program on this machine that intends to call this service.

    A proxy on this machine, or a web page in a browser on it (by a script, or by a host name that resolves to
    loopback), also connects from loopback. Forwarding headers, or a foreign Host or Origin, reveal them.
    """
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(request.client.host) and _named_as_ours(request)


def _named_as_ours(request: Request) -> bool:
    """Return True if Host, and Origin if present, name loopback."""
    origin = request.headers.get("origin")
    named = [_host(request.headers.get("host", ""))]
    return all(map(is_loopback, named if origin is None else [*named, _host(origin.partition("//")[2])]))


def _host(host: str) -> str:
    """Return the host of `host:port`, without IPv6 brackets and without a trailing dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


async def keys_of(request: Request) -> Keys:
    """Return the keys of the request's application."""
    keys: Keys = request.app.state.keys
    return keys


KeysDep = Annotated[Keys, Depends(keys_of)]


def _secret(request: Request) -> str:
    """Return the key from Authorization, X-Api-Key (as gateways send it) or the cookie. Raises MissingKey."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and sent.strip():
        return sent.strip()
    # Another scheme is the proxy's: a browser behind Basic authentication sends it with every request.
    if other_key := request.headers.get("x-api-key", "").strip() or cookie_key(request):
        return other_key
    raise MissingKey("This route needs a bearer key: Authorization: Bearer KEY.")


# A link in a browser sends no Authorization header, so the console's sign-in puts the key into a cookie.

COOKIE = "eigencal_key"


def cookie_of(key: str) -> str:
    """Return the cookie's value for a key."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def is_foreign(request: Request) -> bool:
    """Return True if the headers show that a page of another site sent the request.

    Over HTTPS and on loopback, browsers send Sec-Fetch-Site. Without this header, the Origin, if there is
    one, must equal the Host. A request with neither header counts as one of a client that is no browser.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    host = request.headers.get("host", "")
    return origin is not None and origin not in (f"http://{host}", f"https://{host}")


def cookie_key(request: Request) -> str:
    """Return the key in the cookie; "" if there is none, or if the request may come from another site.

    Requests that may change something need the header Sec-Fetch-Site, or an Origin that equals the Host.
    """
    reads = request.method in ("GET", "HEAD")
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if is_foreign(request) or not (reads or site == "same-origin" or (site is None and origin)):
        return ""
    try:
        return base64.urlsafe_b64decode(request.cookies.get(COOKIE, "") + "==").decode("latin-1")
    except ValueError:
        return ""


def _equal(sent: str, key: str) -> bool:
    # Bytes, since compare_digest refuses text that is not ASCII. Headers arrive as Latin-1.
    same = secrets.compare_digest(sent.encode("latin-1", "replace"), key.encode())
    return same and bool(key)  # an empty key means that none is set
