"""The port of the keys' store. The real one and the fake pass the same tests."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from service.domain.keys.model import Key, Scope

MOST_KEYS = 500  # of each scope: all that are not revoked are in the memory of every replica


@dataclass(frozen=True, slots=True)
class Known:
    """What a replica remembers of the store.

    keys: those that are not revoked; some may have expired. scopes: of which a key was ever made, if all of
    them are revoked by now, too.
    """

    keys: tuple[Key, ...] = ()
    scopes: frozenset[Scope] = frozenset()


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

    async def known(self) -> Known:
        """Return what replicas remember; soon, or it raises."""
