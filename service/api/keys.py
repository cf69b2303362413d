"""Keys made while the service runs: how one is made, and what a replica knows of them."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

from service.errors import StoreUnavailable
from service.ids import new_id

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
    made = Key(new_id("key"), name, scope, prefix_of(secret), digest_of(secret), now, expires_at)
    return made, secret


def digest_of(secret: str) -> str:
    """Return what is stored of a key. Headers arrive as Latin-1."""
    return hashlib.sha256(secret.encode("latin-1", "replace")).hexdigest()


def prefix_of(secret: str) -> str:
    """Return the part of a key that may be shown."""
    return secret[:_SHOWN]


def may_be_ours(secret: str) -> bool:
    """Tell whether a text has the form of a key that was made here: nothing else is worth a query."""
    return secret.startswith(START) and len(secret) == _LENGTH


# The port of the keys' store. The real one and the fake pass the same tests.

MAX_KEYS = 500  # of each scope: all of them are in the memory of every replica


class KeyStore(Protocol):
    """Keys that outlive the process, shared by all replicas. All of them raise StoreUnavailable."""

    async def add(self, key: Key) -> None:
        """Store a new key; of 500 in a scope the oldest that was revoked or has expired makes room.

        Raises Conflict when there is no such one. A scope of which a key was ever made keeps at least one.
        """

    async def list_all(self) -> list[Key]:
        """Return all keys, latest first: revoked and expired ones, too."""

    async def revoke(self, key_id: str, at: datetime) -> Key | None:
        """Revoke a key for good and return it as it is now; one that was revoked keeps its time.

        None when there is no such key.
        """

    async def read_soon(self) -> list[Key]:
        """Return all keys, in any order; raise StoreUnavailable when that takes more than seconds."""


# The keys that this replica knows: asked on every request, behind which it follows the store.

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class KeyRing:
    """Made keys in memory, read anew every `poll_s` seconds.

    A known key never waits for the store: a valid one goes on being so while the store is down, one that was
    revoked or has expired is refused at once. One that is not
    known may have been made on another replica a moment ago: the store is asked, for all of them at once and
    not more often than every `gap_s` seconds, however many wrong keys come. `clock`: the time by which keys
    expire.
    """

    def __init__(
        self,
        store: KeyStore,
        *,
        poll_s: float = 2.0,
        gap_s: float = 0.5,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._poll_s = poll_s
        self._gap_s = gap_s
        self._clock = clock
        self._by_prefix: dict[str, list[Key]] = {}
        self._closed: set[Scope] = set()
        self._revoked: set[str] = set()
        self._failing = False
        self._began = float("-inf")  # the latest reading, by time.monotonic()
        self._one_reading = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._poll: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys and begin to follow the store. Raises StoreUnavailable."""
        await self._read()
        self._poll = asyncio.create_task(self._polling(), name="keys")

    async def stop(self) -> None:
        """Follow the store no more; idempotent."""
        tasks = {task for task in (self._poll, self._next) if task is not None}
        self._poll = self._next = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def closed(self, scope: Scope) -> bool:
        """Tell whether a key of this scope was ever made: its routes then stay closed to those without.

        For good, in this process even when the database is replaced by one without keys.
        """
        return scope in self._closed

    def any_valid(self, scope: Scope) -> bool:
        """Tell whether this replica knows of a valid key of this scope."""
        every = (key for same in self._by_prefix.values() for key in same)
        return any(key.scope == scope and self._opens(key) for key in every)

    def now(self) -> datetime:
        """Return the time by which keys expire."""
        return self._clock()

    async def scope_of(self, secret: str) -> Scope | None:
        """Return what a key opens; None for one that is not valid.

        Raises StoreUnavailable for one that is not known here while the store cannot be asked: it may be
        valid, and a caller who is told that it is not would give it up.
        """
        found = self.find(secret)
        if found is None and may_be_ours(secret):
            await self._news()
            found = self.find(secret)
        return found.scope if found is not None and self._opens(found) else None

    async def make(self, name: str, scope: Scope, expires_at: datetime | None) -> tuple[Key, str]:
        """Make a key and return it with the secret. Raises Conflict, StoreUnavailable."""
        made, secret = new_key(name, scope, expires_at, self._clock())
        await self._store.add(made)
        self._by_prefix.setdefault(made.prefix, []).append(made)
        self._close(scope)
        # Escaped: a name may hold anything, line feeds included.
        log.info("key %s was made: %r, scope %s, expires %s", made.id, name, scope, expires_at or "never")
        return made, secret

    async def list_all(self) -> list[Key]:
        """Return all keys, latest first. Raises StoreUnavailable."""
        return await self._store.list_all()

    async def revoke(self, key_id: str) -> Key | None:
        """Revoke a key, here at once; None when there is no such key. Raises StoreUnavailable."""
        found = await self._store.revoke(key_id, self._clock())
        if found is not None:
            # Remembered for good: a reading that began before may end after this, and bring the key again.
            self._revoked.add(key_id)
            log.info("key %s was revoked: %r, scope %s", found.id, found.name, found.scope)
        return found

    def find(self, secret: str) -> Key | None:
        """Return the key of this secret, where it is known here, valid or not."""
        digest = digest_of(secret).encode()
        # By the part that may be shown, then in constant time: how long it takes tells nothing of the rest.
        for key in self._by_prefix.get(prefix_of(secret), ()):
            if secrets.compare_digest(digest, key.digest.encode()):
                return key
        return None

    def _opens(self, key: Key) -> bool:
        return key.state(self._clock()) == "valid" and key.id not in self._revoked

    async def _news(self) -> None:
        """Return after a reading that began after this call. Raises StoreUnavailable."""
        if self._failing:  # the poll will notice when the store is back: no query for every wrong key
            raise StoreUnavailable(
                "This key is not known here, and the store cannot be asked for it.",
                retry_after_s=self._poll_s,
            )
        if self._next is None:
            self._next = asyncio.create_task(self._read_soon(), name="unknown-key")
        await asyncio.shield(self._next)  # a caller that hangs up does not end it for the others

    async def _read_soon(self) -> None:
        await asyncio.sleep(self._began + self._gap_s - time.monotonic())
        async with self._one_reading:
            self._next = None  # who comes from here on needs another
            await self._take()

    async def _read(self) -> None:
        async with self._one_reading:
            await self._take()

    async def _take(self) -> None:
        """Take over what the store knows. Raises StoreUnavailable."""
        self._began = time.monotonic()
        try:
            found = await self._store.read_soon()
        except StoreUnavailable:
            self._failing = True  # it was logged
            raise
        except Exception as error:
            # Such as a row of a newer version, which this one cannot read.
            self._failing = True
            log.exception("the keys cannot be read")
            raise StoreUnavailable("The keys cannot be read.", retry_after_s=self._poll_s) from error
        self._failing = False
        self._keep(found)

    def _keep(self, keys: list[Key]) -> None:
        found = defaultdict[str, list[Key]](list)
        for key in keys:
            found[key.prefix].append(key)
            self._close(key.scope)
        self._by_prefix = dict(found)

    def _close(self, scope: Scope) -> None:
        if scope not in self._closed:
            self._closed.add(scope)
            log.info("a key of scope %s exists: its routes need one from now on", scope)

    async def _polling(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self._read()
            except StoreUnavailable:
                continue  # the last known keys go on being valid
