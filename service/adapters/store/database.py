"""The engine: connections, pragmas, and one translation of whatever goes wrong."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.adapters.store.migrate import migrate
from service.adapters.store.urls import store_url
from service.domain.errors import StoreUnavailable

logger = logging.getLogger(__name__)

_UNAVAILABLE = "The database cannot be reached."


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises into StoreUnavailable; integrity errors pass, our own errors too."""
    try:
        yield
    except IntegrityError:
        raise
    except (SQLAlchemyError, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The first line alone: further ones of a driver may quote what was to be stored.
        said = str(cause).partition("\n")[0][:200]
        logger.warning("database failed: %s: %s", type(cause).__name__, said)
        raise StoreUnavailable(_UNAVAILABLE, retry_after_s=5.0) from None


class Database:
    """One database by URL. `start` migrates it; connections come from a pool."""

    def __init__(self, url: str, *, busy_timeout_s: float = 30.0) -> None:
        self.url = store_url(url)
        self._busy_timeout_s = busy_timeout_s
        self._engine: AsyncEngine | None = None

    async def start(self) -> None:
        """Create the file's folder, migrate, open the pool. Raises StoreUnavailable."""
        with translated():
            if self.url.get_backend_name() == "sqlite":
                Path(str(self.url.database)).parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(migrate, self.url)
            self._engine = self._create()

    async def stop(self) -> None:
        """Close the pool; idempotent."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    async def check(self) -> None:
        """Return when the database answers; raise StoreUnavailable when not."""
        async with self.read() as connection:
            await connection.execute(sa.text("SELECT 1"))

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection for reading."""
        with translated():
            async with self._require().connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Give a transaction: committed on a clean exit, else rolled back.

        Its first statement must change something: SQLite then takes its write lock before it reads.
        """
        with translated():
            async with self._require().begin() as connection:
                yield connection

    async def forget(self) -> None:
        """Let nothing deleted linger beside the database: SQLite's log keeps pages as they were before."""
        if self.url.get_backend_name() == "sqlite":
            async with self.read() as connection:
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _require(self) -> AsyncEngine:
        if self._engine is None:
            raise StoreUnavailable("The database is not open yet.")
        return self._engine

    def _create(self) -> AsyncEngine:
        if self.url.get_backend_name() == "postgresql":
            return create_async_engine(
                self.url, pool_pre_ping=True, pool_timeout=10, connect_args={"connect_timeout": 5}
            )
        engine = create_async_engine(self.url, pool_timeout=30)
        sa.event.listen(engine.sync_engine, "connect", self._set_pragmas)
        return engine

    def _set_pragmas(self, connection: DBAPIConnection, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA busy_timeout = {int(1000 * self._busy_timeout_s)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten, not only unlinked
        cursor.close()
