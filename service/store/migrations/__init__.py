"""Migrations of the tables. Safe if several replicas start at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL

from service.errors import StoreUnavailable

_LOCK = 0x65696765  # one advisory lock for all replicas
_ONE_AT_A_TIME = threading.Lock()  # Alembic keeps its context in globals
_HERE = Path(__file__).parent


def migrate(url: URL) -> None:
    """Run all missing migrations. Blocks while another replica runs them.

    Raises StoreUnavailable for a Postgres database with an encoding other than UTF-8.
    """
    from alembic import command
    from alembic.config import Config

    if url.get_backend_name() == "postgresql":
        _require_utf8(url)
    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    with _ONE_AT_A_TIME, _exclusive(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _require_utf8(url: URL) -> None:
    import psycopg  # not needed for SQLite; 7 MiB

    # Directly by the driver: SQLAlchemy fails on the bytes that a database in SQL_ASCII sends.
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with suppress(psycopg.Error):  # the migrations raise the same error
        with psycopg.connect(plain, connect_timeout=5) as connection:
            encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"the Postgres database has the encoding {encoding}, which cannot hold every text: make one "
                "with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )


@contextmanager
def _exclusive(url: URL) -> Iterator[sa.Connection]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            yield from _locked(connection)
    finally:
        engine.dispose()


def _locked(connection: sa.Connection) -> Iterator[sa.Connection]:
    if connection.dialect.name == "sqlite":
        yield from _locked_sqlite(connection)
        return
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    yield connection
    connection.commit()


def _locked_sqlite(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Lock a file next to the database: SQLite does not wait if two connections switch to WAL at once."""
    import fcntl

    with Path(f"{connection.engine.url.database}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection.exec_driver_sql("PRAGMA busy_timeout = 30000")
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        connection.rollback()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()
