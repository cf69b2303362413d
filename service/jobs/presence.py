"""Who lives: each replica holds an advisory lock of Postgres, named by its id, for as long as its session."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from sqlalchemy.engine import URL

logger = logging.getLogger(__name__)
_KEY = "hashtextextended('eigencal replica ' || %s, 0)"
TOLERATED = 5  # times in a row: a peer has the lock, too, while it takes over what an earlier process left


class Presence:
    """The lock of one replica, and what its peers find of theirs.

    Postgres ends a session that is silent for `lease_s` seconds, as that of a replica that is frozen or cut
    off. A store that is out of reach is no matter: it is tried again.
    """

    def __init__(self, url: URL, replica_id: str, *, lease_s: float) -> None:
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._replica_id = replica_id
        self._lease_s = lease_s
        self._session: psycopg.AsyncConnection[tuple[bool]] | None = None
        self._refused = 0  # times in a row

    async def hold(self) -> None:
        """Hold the lock, or get it anew where the session has ended."""
        try:
            async with asyncio.timeout(self._lease_s):  # a network that is cut off says nothing
                if self._session is not None:
                    await self._session.execute("SELECT true")
                else:
                    self._session = await self._opened()
        except (psycopg.Error, TimeoutError) as error:
            logger.warning("the session that shows that this replica lives failed: %s", type(error).__name__)
            await self.leave()

    async def keep(self) -> None:
        """Hold the lock until cancelled, however slow the store is at other things."""
        while True:
            await asyncio.sleep(self._lease_s / 10)
            await self.hold()

    async def _opened(self) -> "psycopg.AsyncConnection[tuple[bool]] | None":
        session = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=5)
        await session.execute(f"SET idle_session_timeout = {int(1000 * self._lease_s)}")
        if await _locked(session, self._replica_id):
            self._refused = 0
            return session
        await session.close()
        self._refused += 1
        if self._refused == TOLERATED:
            logger.error(
                "another process runs as replica %s: when one of them dies, nobody takes its jobs over; "
                "give each an EIGENCAL_REPLICA_ID of its own",
                self._replica_id,
            )
        return None

    async def leave(self) -> None:
        """Let go of the lock; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def instead_of(self, replica_id: str) -> AsyncIterator[bool]:
        """Hold the lock of another replica meanwhile; False where that lives, or cannot be told."""
        session = self._session
        try:
            async with asyncio.timeout(self._lease_s):
                dead = session is not None and await _locked(session, replica_id)
        except (psycopg.Error, TimeoutError):
            dead = False
        try:
            yield dead
        finally:
            if dead and session is not None and not session.closed:
                await session.execute(f"SELECT pg_advisory_unlock({_KEY})", (replica_id,))


async def _locked(session: "psycopg.AsyncConnection[tuple[bool]]", replica_id: str) -> bool:
    row = await (await session.execute(f"SELECT pg_try_advisory_lock({_KEY})", (replica_id,))).fetchone()
    return row is not None and row[0]
