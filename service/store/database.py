"""One database by URL: SQLite in a file, or Postgres. Its errors are StoreUnavailable."""

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.errors import StoreUnavailable
from service.remote import SharedCheck
from service.store.migrations import migrate
from service.store.tables import metadata

T = TypeVar("T")
logger = logging.getLogger(__name__)

ANSWER_S = 2.0  # for what must not wait long: scores, health checks
IDLE_S = 15.0  # how long Postgres lets a transaction lie idle
BUSY_TIMEOUT_S = 30.0  # of SQLite


def store_url(url: str) -> URL:
    """Return the asynchronous URL of the store; raises ValueError unless it is a SQLite file or Postgres."""
    try:
        # Hosting services still hand out the old scheme, which SQLAlchemy no longer knows.
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    except (ArgumentError, ValueError):
        raise ValueError("the database URL must begin with sqlite:/// or postgresql://") from None
    kind = parsed.get_backend_name()
    if kind == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise ValueError("the database URL must be of sqlite or postgresql")
    if parsed.database in (None, "", ":memory:"):
        raise ValueError("the SQLite URL must name a file")
    return parsed.set(drivername="sqlite+aiosqlite")


def sync_url(url: URL) -> URL:
    """Return the URL of the same database for blocking use; psycopg serves both."""
    return url.set(drivername="sqlite") if url.get_backend_name() == "sqlite" else url


def shown(url: URL) -> str:
    """Return where the store is, for the log: no user, no password, no parameters."""
    if url.get_backend_name() == "sqlite":
        return f"SQLite file {url.database}"
    return f"PostgreSQL database {url.database} at {url.host or 'localhost'}:{url.port or 5432}"


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises into StoreUnavailable; our own errors pass.

    So do errors of what was to be stored, a taken name or a value that does not fit: waiting mends neither.
    """
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except (SQLAlchemyError, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The first line alone: further ones of a driver may quote what was to be stored.
        logger.warning("database failed: %s: %s", type(cause).__name__, str(cause).partition("\n")[0][:200])
        reason = "The disk of the database is full." if _is_full(cause) else "The database cannot be reached."
        raise StoreUnavailable(reason, retry_after_s=5.0) from None


def _is_full(error: BaseException | None) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"


class Database:
    """Connections from a pool. `start` brings the tables up to date."""

    def __init__(self, url: str) -> None:
        self.url = store_url(url)
        self._engine: AsyncEngine | None = None
        self._slow: set[asyncio.Task[object]] = set()  # given up by `soon`, and not at their end
        # Returns when the database can be read and written; raises StoreUnavailable, which says why not.
        self.ready = SharedCheck(lambda: self.soon(self._ready()))

    async def start(self) -> None:
        """Create the file's folder, migrate, open the pool. Raises StoreUnavailable."""
        with translated():
            if self.url.get_backend_name() == "sqlite":
                Path(str(self.url.database)).parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(migrate, sync_url(self.url))  # Alembic blocks
            self._engine = self._create()

    async def stop(self) -> None:
        """Close the pool; idempotent."""
        if self._slow:  # their connections can be closed once they end
            await asyncio.wait(self._slow, timeout=ANSWER_S)
        engine, self._engine = self._engine, None  # two may stop at once
        if engine is not None:
            await engine.dispose()

    async def _ready(self) -> None:
        if self.url.get_backend_name() == "sqlite":
            await asyncio.to_thread(_probe, Path(str(self.url.database)), ANSWER_S / 2)
            return
        async with self.read() as connection:
            if await connection.scalar(sa.text("SHOW transaction_read_only")) == "on":
                raise StoreUnavailable("The database is read-only.", retry_after_s=5.0)
            try:
                # What a writer takes; a backup or a change of the tables may hold it up.
                await connection.execute(sa.text("LOCK TABLE jobs IN ROW EXCLUSIVE MODE NOWAIT"))
            except OperationalError:
                raise StoreUnavailable("The database is locked.", retry_after_s=5.0) from None

    async def soon(self, call: Awaitable[T]) -> T:
        """Return what a call returns, or raise StoreUnavailable when that takes more than `ANSWER_S`.

        One that is given up is left to end by itself: a driver that is cancelled asks the server to stop, and
        waits for one that is frozen.
        """
        task = asyncio.ensure_future(call)
        self._slow.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if not done:
            raise StoreUnavailable("The database does not answer.", retry_after_s=5.0)
        return task.result()

    def _ended(self, task: "asyncio.Task[object]") -> None:
        self._slow.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to ask for it

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection for reading."""
        with translated():
            async with self._open().connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Give a transaction: committed on a clean exit, else rolled back.

        Its first statement must change something: SQLite then takes its write lock before it reads.
        """
        with translated():
            async with self._open().begin() as connection:
                yield connection

    async def forget(self) -> None:
        """Let nothing deleted linger beside the database: SQLite's log keeps pages as they were before."""
        if self.url.get_backend_name() == "sqlite":
            async with self.read() as connection:
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open(self) -> AsyncEngine:
        if self._engine is None:
            raise StoreUnavailable("The database is not open yet.")
        return self._engine

    def _create(self) -> AsyncEngine:
        if self.url.get_backend_name() == "postgresql":
            bounds = {"pool_pre_ping": True, "pool_timeout": 10, "connect_args": {"connect_timeout": 5}}
            # A replica frozen in the middle of a transaction must not hold the lock on a job's row for ever.
            settings = [f"SET idle_in_transaction_session_timeout = {int(1000 * IDLE_S)}"]
        else:
            bounds = {"pool_timeout": 30}
            settings = [
                "PRAGMA journal_mode = WAL",
                f"PRAGMA busy_timeout = {int(1000 * BUSY_TIMEOUT_S)}",
                "PRAGMA foreign_keys = ON",
                "PRAGMA secure_delete = ON",  # what is forgotten is overwritten, not only unlinked
            ]
        # Errors go to the log, which must not hold what was to be stored.
        engine = create_async_engine(self.url, hide_parameters=True, **bounds)
        sa.event.listen(engine.sync_engine, "connect", partial(_set_up, settings))
        return engine


def _probe(path: Path, patience_s: float) -> None:
    """Read a SQLite file anew, and take its write lock for a moment; blocks for so long at most.

    By a connection of its own: those of the pool may have in memory what the file no longer holds. Raises
    StoreUnavailable.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in metadata.tables:
                connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()  # noqa: S608
    except sqlite3.Error as error:  # which is of a few words, and names no file
        raise StoreUnavailable(f"The database cannot be written: {error}.", retry_after_s=5.0) from None


def _set_up(settings: Sequence[str], connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    for statement in settings:
        cursor.execute(statement)
    cursor.close()
    connection.commit()
