"""The port of the keys' store. The real one and the fake pass the same tests."""

from datetime import datetime
from typing import Protocol

from service.domain.keys.model import Key

MOST_KEYS = 500  # of each scope: all of them are in the memory of every replica


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
