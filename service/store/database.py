"""Connections to the database, what each backend needs set, and its errors as StoreUnavailable."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.errors import StoreUnavailable
from service.store.location import Bounded, DatabaseFile, is_full, store_url
from service.store.migrations import migrate

T = TypeVar("T")
logger = logging.getLogger(__name__)

_unavailable = partial(StoreUnavailable, retry_after_s=5.0)
IDLE_S = 15.0
_GONE = "The file of the database is gone or was replaced: put it back, or start the service anew."


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
        why = "The disk of the database is full." if is_full(cause) else "The database cannot be reached."
        raise _unavailable(why) from None


class Database:
    """One database by URL. `start` migrates it; connections come from a pool.

    A SQLite file that is deleted or replaced under the service is noticed, and opened anew once there is one
    again; `generation` counts how often. `answer_s`: how long `soon` and `check` wait at most. `probe_s`: how
    long one proof that the disk takes writes holds. `idle_s`: how long Postgres lets a transaction lie idle.
    """

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = 30.0,
        answer_s: float = 2.0,
        probe_s: float = 5.0,
        idle_s: float = IDLE_S,
    ) -> None:
        self.url = store_url(url)
        self.generation = 0
        self._busy_timeout_s = busy_timeout_s
        self._probe_s = probe_s
        self._idle_s = idle_s
        self._probed = float("-inf")
        self._engine: AsyncEngine | None = None
        self._opening = asyncio.Lock()
        self._bounded = Bounded(answer_s)
        sqlite = self.url.get_backend_name() == "sqlite"
        self._file = DatabaseFile(str(self.url.database)) if sqlite else None

    async def start(self) -> None:
        """Create the file's folder, migrate, open the pool. Raises StoreUnavailable."""
        with translated():
            if self.url.get_backend_name() == "sqlite":
                Path(str(self.url.database)).parent.mkdir(parents=True, exist_ok=True)
            await self._open()

    async def _open(self) -> None:
        await asyncio.to_thread(migrate, self.url)  # Alembic blocks
        if self._file is not None:
            self._file.opened()
        self._engine = self._create()
        async with self._engine.connect():  # kept in the pool: while it is open no other file gets its number
            self.generation += 1

    async def stop(self) -> None:
        """Close the pool; idempotent."""
        await self._bounded.stop()
        engine, self._engine = self._engine, None  # two may stop at once
        if engine is not None:
            await engine.dispose()

    async def check(self) -> None:
        """Return when the database answers and takes writes; raise StoreUnavailable when not."""
        await self.soon("check", self._check)

    async def soon(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what a call returns, or raise StoreUnavailable when that takes too long (see `Bounded`)."""
        return await self._bounded.call(key, make)

    async def _check(self) -> None:
        async with self.read() as connection:
            if connection.dialect.name == "postgresql":
                setting = sa.text("SELECT current_setting('transaction_read_only')")
                if (await connection.execute(setting)).scalar() == "on":
                    raise _unavailable("The database takes no writes now.")
            else:
                await connection.execute(sa.text("SELECT 1"))
        await self._probe()

    async def _probe(self) -> None:
        """Prove that the disk takes writes, unless that was proved lately."""
        if self._file is None or time.monotonic() - self._probed < self._probe_s:
            return
        with translated():
            await asyncio.to_thread(self._file.probe)
        self._probed = time.monotonic()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection for reading."""
        with translated():
            async with (await self._current()).connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Give a transaction: committed on a clean exit, else rolled back.

        Its first statement must change something: SQLite then takes its write lock before it reads.
        """
        try:
            with translated():
                async with (await self._current()).begin() as connection:
                    yield connection
                    if self._lost():  # before the commit, which would succeed in a deleted file
                        raise _unavailable(_GONE)
        except StoreUnavailable:
            self._probed = float("-inf")
            raise

    async def forget(self) -> None:
        """Let nothing deleted linger beside the database: SQLite's log keeps pages as they were before."""
        if self.url.get_backend_name() == "sqlite":
            async with self.read() as connection:
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _current(self) -> AsyncEngine:
        """Return the engine of the file that is there now."""
        if self._lost():
            await self._reopen()
        if self._engine is None:
            raise StoreUnavailable("The database is not open yet.")
        return self._engine

    def _lost(self) -> bool:
        return self._file is not None and self._file.lost()

    async def _reopen(self) -> None:
        """Let go of the lost file at once: closing deletes its log, too. Open another once it is whole."""
        async with self._opening:
            if self._file is None or not self._file.lost():
                return
            if self._engine is not None:
                logger.error("the database file is gone or was replaced: what was in it cannot be reached")
                await self.stop()
            if not self._file.usable():
                raise _unavailable(_GONE)
            await self._open()
            logger.warning("the database file was opened anew")

    def _create(self) -> AsyncEngine:
        if self.url.get_backend_name() == "postgresql":
            bounds = {"pool_pre_ping": True, "pool_timeout": 10, "connect_args": {"connect_timeout": 5}}
            # A replica frozen in the middle of a transaction must not hold the lock on a job's row for ever.
            settings = [f"SET idle_in_transaction_session_timeout = {int(1000 * self._idle_s)}"]
        else:
            bounds = {"pool_timeout": 30}
            settings = [
                "PRAGMA journal_mode = WAL",
                f"PRAGMA busy_timeout = {int(1000 * self._busy_timeout_s)}",
                "PRAGMA foreign_keys = ON",
                "PRAGMA secure_delete = ON",  # what is forgotten is overwritten, not only unlinked
            ]
        engine = create_async_engine(self.url, **bounds)
        sa.event.listen(engine.sync_engine, "connect", partial(_set_up, settings))
        return engine


def _set_up(settings: Sequence[str], connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    for statement in settings:
        cursor.execute(statement)
    cursor.close()
    connection.commit()
