"""Made keys in memory."""

import asyncio
from dataclasses import replace
from datetime import datetime

from service.errors import Conflict, StoreUnavailable
from service.store import keys as stored
from service.store.keys import Key


class MemoryKeys:
    """Stands in for `SqlKeys`.

    `available` false: every call raises. `readings` counts the calls of `list_all`; each takes what there
    is, then waits for `gate`, where there is one.
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
        same = [one for one in self._keys.values() if one.scope == key.scope]
        if len(same) >= stored.MAX_KEYS:
            ended = [one for one in same if one.state(key.created_at) != "valid"]
            if not ended:
                raise Conflict("There are too many keys of this scope.")
            del self._keys[ended[0].id]
        self._keys[key.id] = key

    async def list_all(self) -> list[Key]:
        """Return all keys, latest first."""
        self.readings += 1
        self._check()
        every = sorted(self._keys.values(), key=lambda key: (key.created_at, key.id), reverse=True)
        if self.gate is not None:
            await self.gate.wait()
        return every

    async def revoke(self, key_id: str, at: datetime) -> Key | None:
        """Revoke a key."""
        self._check()
        found = self._keys.get(key_id)
        if found is not None and found.revoked_at is None:
            found = self._keys[key_id] = replace(found, revoked_at=at)
        return found

    def _check(self) -> None:
        if not self.available:
            raise StoreUnavailable("The store is not available.")
