"""Database URLs: what an operator writes, and the drivers that it stands for."""

from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError


def store_url(url: str) -> URL:
    """Return the asynchronous URL of the store for `sqlite:///file`, `postgres://...` or `postgresql://...`.

    Raises ValueError for another database, or for SQLite in memory, which replicas and jobs cannot share.
    """
    try:
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
    return blocking.render_as_string(hide_password=False)
