"""Keys in SQL. Only their hashes are stored."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.engine import RowMapping

from service.store.database import Database, keys

Scope = Literal["score", "admin"]
State = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key.

    `digest`: SHA-256 of the key, 64 hex digits. It reveals nothing and needs no salt, since keys are 256
    random bits. `prefix`: the first characters of the key, which may be shown. Times are in UTC.
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
        """Return the state of the key at this time. Only a valid key gives access."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


_KEY = TypeAdapter(Key)


class SqlKeys:
    """Stored keys, shared by all replicas. All methods raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: Key) -> None:
        """Store a new key."""
        async with self._database.write() as connection:
            await connection.execute(sa.insert(keys).values(asdict(key)))

    async def list_all(self) -> list[Key]:
        """Return all keys that can be read, latest first, revoked and expired keys included.

        A slow store counts as unavailable.
        """
        query = sa.select(keys).order_by(keys.c.created_at.desc(), keys.c.id.desc())
        return await self._database.soon(self._database.readable(query, keys, _decoded))

    @property
    def has_unreadable(self) -> bool:
        """Return True if a stored key cannot be read."""
        return bool(self._database.unreadable_rows(keys.name))

    async def revoke(self, key_id: str, at: datetime) -> Key | None:
        """Revoke a key and return it; None if there is no such key. A revoked key keeps its time.

        Raises DamagedRow if the key cannot be read. It is revoked all the same.
        """
        this = keys.c.id == key_id
        change = sa.update(keys).where(this, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        async with self._database.write() as connection:
            await connection.execute(change)
        return await self._database.row(sa.select(keys).where(this), keys, _decoded)


def _decoded(row: RowMapping) -> Key:
    return _KEY.validate_python(dict(row))
