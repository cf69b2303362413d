"""Waiting for a database for a bounded time, whatever it does."""

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from service.errors import StoreUnavailable

T = TypeVar("T")


class Bounded:
    """Calls that are waited for `answer_s` at most. Those of the same key share one.

    A call that is given up is not cancelled but left to end by itself: a driver that is cancelled asks the
    server to stop, and waits for one that is frozen.
    """

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self._calls: dict[Hashable, asyncio.Task[Any]] = {}

    async def call(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what the call returns. Raises what it raises, StoreUnavailable when it takes too long."""
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._ended(key, done))
        # Not wait_for, which cancels what it gives up.
        done, _ = await asyncio.wait({task}, timeout=self._answer_s)
        if not done:
            raise StoreUnavailable("The database does not answer.", retry_after_s=5.0)
        result: T = task.result()
        return result

    async def stop(self) -> None:
        """Let calls that were given up end, if they do soon: their connections can then be closed."""
        others = set(self._calls.values()) - {asyncio.current_task()}  # a call may be what stops
        if others:
            await asyncio.wait(others, timeout=self._answer_s)

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._calls[key]
        if not task.cancelled():
            task.exception()  # nobody may be left to ask for it


# Where a database is: the URL that an operator writes, and the file of one in SQLite.

_HEADER = b"SQLite format 3\0"
_PROBE_BYTES = 64 << 10


class DatabaseFile:
    """A file by path. Connections to a deleted file go on as if it were there: what they write is lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._opened: tuple[int, int] | None = None
        self._gone = False  # for good: a later file may get the same number

    def opened(self) -> None:
        """Remember the file that is there now as the one that connections have."""
        self._opened, self._gone = self._identity(), False

    def lost(self) -> bool:
        """Tell whether the path no longer leads to the file that was opened."""
        self._gone = self._gone or (self._opened is not None and self._identity() != self._opened)
        return self._gone

    def usable(self, *, settled_s: float = 1.0) -> bool:
        """Tell whether a database is there that nobody is still copying: unchanged for `settled_s`."""
        try:
            with self._path.open("rb") as file:
                head = file.read(len(_HEADER))
            return head == _HEADER and time.time() - self._path.stat().st_mtime >= settled_s
        except OSError:
            return False

    def probe(self) -> None:
        """Write a little beside the database and take it away again; raise OSError where that fails."""
        with tempfile.TemporaryFile(dir=self._path.parent) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # a full disk may show only when it has to write

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error of SQLite, or of the system, says that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"


def store_url(url: str) -> URL:
    """Return the asynchronous URL of the store for `sqlite:///file`, `postgres://...` or `postgresql://...`.

    Raises ValueError for another database, or for SQLite in memory, which replicas and jobs cannot share.
    """
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


def jobs_url(url: URL) -> str:
    """Return the URL where DBOS keeps its tables: a file beside ours, or the same Postgres (own schema)."""
    blocking = sync_url(url)
    if blocking.get_backend_name() == "sqlite":
        blocking = blocking.set(database=f"{blocking.database}.jobs")
    # str() of a URL has asterisks in place of the password.
    return blocking.render_as_string(hide_password=False)
