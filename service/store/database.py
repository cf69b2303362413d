"""The tables of the store, and connections to its database.

The database is a SQLite file or Postgres. Its errors are raised as StoreUnavailable. The history of the
tables is in `migrations`; a test compares the two. Texts that people wrote (prompts, answers, names) are in
JSON columns: Postgres allows NUL in json but not in text.
"""

import asyncio
import errno
import logging
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.engine import URL, RowMapping
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

from service.errors import DamagedRow, StoreUnavailable
from service.llm.connection import HealthProbe
from service.store.migrations import migrate

metadata = sa.MetaData(
    # Equal names on both databases, so that migrations can refer to constraints.
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware datetimes in UTC, also on SQLite, which stores no zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Add the zone to naive values from SQLite."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# The defaults are for a queued job.
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("state", sa.String(20), nullable=False, index=True, default="queued"),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("setup", sa.JSON, nullable=False, default={}),
    sa.Column("setup_key", sa.String(32), nullable=False, default=""),
    # SQL NULL for None: otherwise the column would hold the JSON word null, which is a value.
    sa.Column("fingerprint", sa.JSON(none_as_null=True)),
    sa.Column("num_rows", sa.Integer, nullable=False, default=0),
    sa.Column("content_hash", sa.String(64), nullable=False, default=""),
    sa.Column("idempotency_key", sa.String(255), unique=True),
    sa.Column("stage", sa.String(20)),
    sa.Column("done", sa.Integer, nullable=False, default=0),
    sa.Column("total", sa.Integer, nullable=False, default=0),
    # The progress at the start of the stage, and the time of the last progress, for the pace of the stage.
    sa.Column("stage_began_at", UtcDateTime),
    sa.Column("stage_began_done", sa.Integer),
    sa.Column("progressed_at", UtcDateTime),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("error_code", sa.String(40)),
    sa.Column("error_detail", sa.Text),
    sa.Column("calibration_id", sa.String(40)),
    sa.Column("activated", sa.Boolean),
    sa.Column("decision", sa.Text),
    sa.Column("created_at", UtcDateTime, nullable=False, default=lambda: datetime.now(UTC)),
    sa.Column("started_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("refused_rows", sa.Integer, nullable=False, default=0),
)

dev_rows = sa.Table(
    "dev_rows",
    metadata,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("content", sa.JSON, nullable=False),
    sa.Column("draws", sa.JSON, nullable=False),
    sa.Column("supplied", sa.Boolean, nullable=False),  # the answers came with the row
    sa.Column("complete", sa.Boolean, nullable=False),
    # The LLM server's message if it refused the row, and the verdict on the row's answer.
    sa.Column("refused", sa.JSON(none_as_null=True)),
    sa.Column("verdict", sa.JSON(none_as_null=True)),
    sa.Column("replies", sa.JSON(none_as_null=True)),  # of the LLM to questions about its answers
)

calibrations = sa.Table(
    "calibrations",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), index=True),
    sa.Column("fingerprint_key", sa.String(32), nullable=False, index=True),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("num_rows", sa.Integer, nullable=False),
    # Copied from the report: Postgres cannot query JSON that contains NUL.
    sa.Column("projection_ece", sa.Float),
    sa.Column("raw_projection_ece", sa.Float),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

reports = sa.Table(
    "reports",
    metadata,
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
    sa.Column("report", sa.JSON, nullable=False),
)

# References for the out-of-distribution check: up to megabytes, loaded only for calibrations in use.
conformal_references = sa.Table(
    "conformal_references",
    metadata,
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

# All activations are kept; replicas poll the largest id. Only the column `current` ever changes. `by` may
# contain the name of a key, which people wrote. The partial unique index prevents a second current activation
# of a fingerprint.
activations = sa.Table(
    "activations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), nullable=False),
    sa.Column("fingerprint_key", sa.String(32), nullable=False),
    sa.Column("current", sa.Boolean, nullable=False),
    sa.Column("activated_at", UtcDateTime, nullable=False),
    sa.Column("by", sa.JSON, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("replaced", sa.String(40)),
    # Otherwise SQLite reuses the largest id after its row was deleted.
    sqlite_autoincrement=True,
)

sa.Index(
    "uq_activations_current",
    activations.c.fingerprint_key,
    unique=True,
    sqlite_where=activations.c.current,
    postgresql_where=activations.c.current,
)

# The replicas that run jobs. `seen_at`: seconds since 1970, by the database's clock.
replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.String(255), primary_key=True),
    sa.Column("seen_at", sa.Float, nullable=False),
)

# The readiness check inserts and deletes a row: only a write detects a full disk or a read-only database.
write_checks = sa.Table(
    "write_checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
)

# SQLite increments only `Integer` automatically, which has 64 bits there.
_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Documents kept for a while, as JSON text. `number` is the order of their age: of two documents stored
# concurrently under the same names, the larger one is the later.
kept = sa.Table(
    "kept",
    metadata,
    sa.Column("number", _COUNT, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(255), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("expires", sa.Float, nullable=False, index=True),  # seconds since 1970, by the database's clock
    sa.Column("content", sa.Text, nullable=False),
)

sa.Index("ix_kept_names", kept.c.owner, kept.c.id)

# Keys, only as hashes. `name` is written by people, `prefix` is the part of the key that may be shown.
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.JSON, nullable=False),
    sa.Column("scope", sa.String(20), nullable=False),
    sa.Column("prefix", sa.String(20), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=True),
    sa.Column("revoked_at", UtcDateTime, nullable=True),
)


T = TypeVar("T")
logger = logging.getLogger(__name__)

ANSWER_S = 2.0  # limit for calls that must not wait long: scores, health checks
IDLE_S = 15.0  # time after which Postgres ends an idle transaction
BUSY_TIMEOUT_S = 30.0  # of SQLite
DAMAGED = "The database file is damaged."


def store_url(url: str) -> URL:
    """Return the asynchronous URL of the store. Raises ValueError unless it is a SQLite file or Postgres."""
    try:
        # Hosting services still use the old scheme, which SQLAlchemy no longer accepts.
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
    """Return the URL of the same database for blocking use. The URL of Postgres serves both uses."""
    return url.set(drivername="sqlite") if url.get_backend_name() == "sqlite" else url


def shown(url: URL) -> str:
    """Return the location of the store for the log, without user, password and parameters."""
    if url.get_backend_name() == "sqlite":
        return f"SQLite file {url.database}"
    return f"PostgreSQL database {url.database} at {url.host or 'localhost'}:{url.port or 5432}"


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the driver into StoreUnavailable.

    Errors of the service pass unchanged, and so do errors of the stored values (a taken name, an invalid
    value), since waiting does not help.
    """
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except (SQLAlchemyError, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # Only the first line: further lines of a driver may quote the values to store.
        logger.warning("database failed: %s: %s", type(cause).__name__, str(cause).partition("\n")[0][:200])
        raise StoreUnavailable(_reason(cause), retry_after_s=5.0) from None


@contextmanager
def opening(url: URL) -> Iterator[None]:
    """Like `translated`, for the start: the error names the database, which API callers must not see."""
    try:
        with translated():
            yield
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{shown(url)}: {error.detail}", retry_after_s=error.retry_after_s) from None


def _reason(error: BaseException | None) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_FULL" or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "The disk of the database is full."
    if name == "SQLITE_NOTADB" or name.startswith("SQLITE_CORRUPT"):
        return DAMAGED
    return "The database cannot be reached."


class Database:
    """A pool of connections. `start` migrates the tables."""

    def __init__(self, url: str) -> None:
        self.url = store_url(url)
        self._unreadable: defaultdict[tuple[str, object], set[str]] = defaultdict(set)  # by table and decoder
        self._engine: AsyncEngine | None = None
        self._slow: set[asyncio.Task[object]] = set()  # calls of `soon` that have not ended
        # Returns if the database can be read and written, else raises StoreUnavailable with the reason.
        self.ready = HealthProbe(lambda: self.soon(self._ready()))

    async def start(self) -> None:
        """Create the file's folder, migrate, open the pool. Raises StoreUnavailable with the file's name."""
        with opening(self.url):
            if self.url.get_backend_name() == "sqlite":
                Path(str(self.url.database)).parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(migrate, sync_url(self.url))  # Alembic blocks
            self._engine = self._create()

    async def stop(self) -> None:
        """Close the pool. Idempotent."""
        if self._slow:  # their connections can be closed once they end
            await asyncio.wait(self._slow, timeout=ANSWER_S)
        engine, self._engine = self._engine, None  # `stop` may be called twice at once
        if engine is not None:
            await engine.dispose()

    async def _ready(self) -> None:
        if self.url.get_backend_name() == "sqlite":
            await asyncio.to_thread(_probe, Path(str(self.url.database)), ANSWER_S / 2)
            return
        async with self.write() as connection:
            if await connection.scalar(sa.text("SHOW transaction_read_only")) == "on":
                raise StoreUnavailable("The database is read-only.", retry_after_s=5.0)
            try:
                # The lock that writers take; a backup or a migration may hold it.
                await connection.execute(sa.text("LOCK TABLE jobs IN ROW EXCLUSIVE MODE NOWAIT"))
            except OperationalError:
                raise StoreUnavailable("The database is locked.", retry_after_s=5.0) from None
            row = await connection.execute(sa.insert(write_checks).returning(write_checks.c.id))
            await connection.execute(sa.delete(write_checks).where(write_checks.c.id == row.scalar_one()))

    async def soon(self, call: Awaitable[T]) -> T:
        """Return the result of a call, or raise StoreUnavailable after `ANSWER_S` seconds.

        The call is not cancelled then: a cancelled driver asks the server to stop, and would wait for a
        frozen server.
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
            task.exception()  # retrieved here, as the caller may have gone

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection for reading."""
        with translated():
            async with self._open().connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a transaction, which is committed on a clean exit, else rolled back.

        Its first statement must be a write: SQLite then takes its write lock before it reads.
        """
        with translated():
            async with self._open().begin() as connection:
                yield connection

    async def readable(
        self, query: sa.Select[Any], table: sa.Table, decode: Callable[[RowMapping], T]
    ) -> list[T]:
        """Return the decoded rows of a query. A row that cannot be read is skipped, and logged by its id.

        `table`: the table whose primary key identifies a row.
        """
        rows, failures = await self._decoded(query, table, decode)
        # A calibration may be readable for a list, but not with the reference that a score needs.
        unreadable = self._unreadable[table.name, decode]
        for failed_id in failures.keys() - unreadable:
            error = type(failures[failed_id]).__name__
            logger.error("row %s of %s cannot be read and is skipped: %s", failed_id, table.name, error)
        unreadable.difference_update(rows)
        unreadable.update(failures)
        return list(rows.values())

    async def rows(
        self, query: sa.Select[Any], table: sa.Table, decode: Callable[[RowMapping], T]
    ) -> list[T]:
        """Return the decoded rows of a query. Raises DamagedRow for the first that cannot be read."""
        rows, failures = await self._decoded(query, table, decode)
        for failed_id, failure in failures.items():
            raise DamagedRow(table.name, failed_id) from failure
        return list(rows.values())

    async def row(
        self, query: sa.Select[Any], table: sa.Table, decode: Callable[[RowMapping], T]
    ) -> T | None:
        """Return the decoded first row of a query; None if there is no row. Raises DamagedRow."""
        return next(iter(await self.rows(query, table, decode)), None)

    async def _decoded(
        self, query: sa.Select[Any], table: sa.Table, decode: Callable[[RowMapping], T]
    ) -> tuple[dict[str, T], dict[str, Exception]]:
        """Return the decoded rows of a query, and the errors of the rows that cannot be read, by id."""
        async with self.read() as connection:
            try:
                stored = (await connection.execute(query)).mappings().all()
                return {_id_of(table, row): decode(row) for row in stored}, {}
            except Exception as failure:
                if not _is_of_a_row(failure):
                    raise
                return await _row_by_row(connection, query, table, decode)

    def unreadable_rows(self, table: str = "") -> list[str]:
        """Return the rows that `readable` skips, of a table or of all tables, as "table id"."""
        skipped = {
            f"{name} {failed_id}"
            for (name, _), ids in self._unreadable.items()
            if table in ("", name)
            for failed_id in ids
        }
        return sorted(skipped)

    async def forget(self) -> None:
        """Remove deleted data from SQLite's log, which contains earlier versions of pages."""
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
            # A replica that freezes in a transaction must not hold the lock on a job's row for ever.
            settings = [f"SET idle_in_transaction_session_timeout = {int(1000 * IDLE_S)}"]
        else:
            bounds = {"pool_timeout": 30}
            settings = [
                "PRAGMA journal_mode = WAL",
                f"PRAGMA busy_timeout = {int(1000 * BUSY_TIMEOUT_S)}",
                "PRAGMA foreign_keys = ON",
                "PRAGMA secure_delete = ON",  # deleted data are overwritten, not only unlinked
            ]
        # Errors are logged, and the log must not contain the values to store.
        engine = create_async_engine(self.url, hide_parameters=True, **bounds)
        sa.event.listen(engine.sync_engine, "connect", partial(_set_up, settings))
        return engine


async def _row_by_row(
    connection: AsyncConnection,
    query: sa.Select[Any],
    table: sa.Table,
    decode: Callable[[RowMapping], T],
) -> tuple[dict[str, T], dict[str, Exception]]:
    key = table.primary_key.columns
    keys = await connection.execute(query.with_only_columns(*key, maintain_column_froms=True))
    rows, failures = dict[str, T](), dict[str, Exception]()
    for stored_key in keys.mappings().all():
        this = (column == stored_key[column] for column in key)
        row_id = _id_of(table, stored_key)
        try:
            rows[row_id] = decode((await connection.execute(query.where(*this))).mappings().one())
        except Exception as error:
            if not _is_of_a_row(error):
                raise
            failures[row_id] = error
    return rows, failures


def _id_of(table: sa.Table, row: RowMapping) -> str:
    return "/".join(str(row[column]) for column in table.primary_key.columns)


def _is_of_a_row(error: Exception) -> bool:
    """Return True for an error of a stored value, False for an error of the database."""
    is_of_value = isinstance(error, DataError) or "Could not decode to UTF-8" in str(error)
    return is_of_value or not isinstance(error, SQLAlchemyError)


def _probe(path: Path, patience_s: float) -> None:
    """Read a SQLite file and write to it, over a new connection. Blocks for at most `patience_s` seconds.

    Connections of the pool may have cached pages that the file has lost. Raises StoreUnavailable.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in metadata.tables:
                connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()  # noqa: S608
            connection.execute("INSERT INTO write_checks DEFAULT VALUES")
            connection.execute("DELETE FROM write_checks")
            connection.execute("COMMIT")
    except sqlite3.Error as error:  # a few words, without the name of the file
        raise StoreUnavailable(f"The database cannot be written: {error}.", retry_after_s=5.0) from None


def _set_up(settings: Sequence[str], connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    for statement in settings:
        cursor.execute(statement)
    cursor.close()
    connection.commit()
