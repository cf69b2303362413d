"""An in-memory fake of the store of keys."""

import asyncio
from dataclasses import replace
from datetime import datetime

from service.errors import StoreUnavailable
from service.store.keys import Key


class MemoryKeys:
    """Replaces `SqlKeys`.

    `available` false: each call raises. `readings` counts the calls of `list_all`; each reads the keys, then
    waits for `gate`, if there is one.
    """

    def __init__(self) -> None:
        self.available = True
        self.has_unreadable = False
        self.readings = 0
        self.gate: asyncio.Event | None = None
        self._keys: dict[str, Key] = {}

    async def add(self, key: Key) -> None:
        """Store a key."""
        self._check()
        self._keys[key.id] = key

    async def list_all(self) -> list[Key]:
        """Return all keys, latest first."""
        self.readings += 1
        self._check()
        keys = sorted(self._keys.values(), key=lambda key: (key.created_at, key.id), reverse=True)
        if self.gate is not None:
            await self.gate.wait()
        return keys

    async def revoke(self, key_id: str, at: datetime) -> Key | None:
        """Revoke a key."""
        self._check()
        key = self._keys.get(key_id)
        if key is not None and key.revoked_at is None:
            key = self._keys[key_id] = replace(key, revoked_at=at)
        return key

    def _check(self) -> None:
        if not self.available:
            raise StoreUnavailable("The store is not available.")
