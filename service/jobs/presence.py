"""Who lives: each replica holds an advisory lock of Postgres, named by its id, for as long as its session."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from sqlalchemy.engine import URL

logger = logging.getLogger(__name__)
_KEY = "hashtextextended('eigencal replica ' || %s, 0)"


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

    async def hold(self) -> None:
        """Hold the lock, or get it anew where the session has ended."""
        try:
            async with asyncio.timeout(self._lease_s):  # a network that is cut off says nothing
                if self._session is None:
                    self._session = await self._opened()
                # Each time: a peer may have had it, to take over what ran here while this replica was silent.
                await self._session.execute(f"SELECT pg_try_advisory_lock({_KEY})", (self._replica_id,))
        except (psycopg.Error, TimeoutError) as error:
            logger.warning("the session that shows that this replica lives failed: %s", type(error).__name__)
            await self.leave()

    async def keep(self) -> None:
        """Hold the lock until cancelled, however slow the store is at other things."""
        while True:
            await asyncio.sleep(self._lease_s / 10)
            await self.hold()

    async def _opened(self) -> "psycopg.AsyncConnection[tuple[bool]]":
        session = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=5)
        for bound in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            await session.execute(f"SET {bound} = {int(1000 * self._lease_s)}")
        return session

    async def leave(self) -> None:
        """Let go of the lock; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def instead_of(self, replica_id: str) -> AsyncIterator[bool]:
        """Hold the lock of another replica meanwhile; False where that lives, or cannot be told.

        It ends with a transaction, whatever breaks that off. Raises psycopg.Error, TimeoutError.
        """
        session = self._session
        if session is None:
            yield False
            return
        async with asyncio.timeout(self._lease_s), session.transaction():
            asked = f"SELECT pg_try_advisory_xact_lock({_KEY})"
            row = await (await session.execute(asked, (replica_id,))).fetchone()
            yield row is not None and row[0]
