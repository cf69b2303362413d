"""Which replicas are alive: each holds an advisory lock of Postgres, named by its id, while it runs jobs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from sqlalchemy.engine import URL

logger = logging.getLogger(__name__)
_KEY = "hashtextextended('eigencal replica ' || %s, 0)"


class Presence:
    """The lock of one replica, and the way to see that a peer has lost its own.

    Postgres ends a session that is silent for `lease_s` seconds, so a frozen or disconnected replica loses
    its lock. Store outages are retried.
    """

    def __init__(self, url: URL, replica_id: str, *, lease_s: float) -> None:
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._replica_id = replica_id
        self._lease_s = lease_s
        self._session: psycopg.AsyncConnection[tuple[bool]] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Hold the lock until `stop`."""
        await self.hold()
        self._keeper = asyncio.create_task(self._keep(), name="presence")

    async def stop(self) -> None:
        """Let go of the lock; idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        await self._leave()

    async def hold(self) -> None:
        """Hold the lock, or take it again after the session has ended."""
        try:
            async with asyncio.timeout(self._lease_s):  # a network that is cut off says nothing
                if self._session is None:
                    self._session = await self._opened()
                # Each time: a peer that takes over may have had the lock while this replica was silent.
                await self._session.execute(f"SELECT pg_try_advisory_lock({_KEY})", (self._replica_id,))
        except (psycopg.Error, TimeoutError) as error:
            logger.warning("the session that shows that this replica lives failed: %s", type(error).__name__)
            await self._leave()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 5)
            await self.hold()

    async def _opened(self) -> "psycopg.AsyncConnection[tuple[bool]]":
        session = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=5)
        for bound in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            await session.execute(f"SET {bound} = {int(1000 * self._lease_s)}")
        return session

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def instead_of(self, replica_id: str) -> AsyncIterator[bool]:
        """Try to hold a peer's lock inside the block. Yield False if the peer is alive or cannot be looked up.

        The lock ends with its transaction. Raises psycopg.Error, TimeoutError.
        """
        session = self._session
        if session is None:
            yield False
            return
        async with asyncio.timeout(self._lease_s), session.transaction():
            query = f"SELECT pg_try_advisory_xact_lock({_KEY})"
            row = await (await session.execute(query, (replica_id,))).fetchone()
            yield row is not None and row[0]
