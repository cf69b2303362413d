"""A job of two replicas ends with the same numbers after PostgreSQL failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from service.jobs.model import JobOptions
from tests.support.job_worker import dev_rows, go_on, hold
from tests.support.postgres import Cluster
from tests.support.processes import (
    final,
    idle_replica,
    requests,
    undisturbed,
    until_asked,
    worker,
)

ROWS, SLOTS = 60, 2
TROUBLE_S = 5.0  # longer than the lease of a replica, 4 s
pytestmark = pytest.mark.postgres


def end_sessions(url: str) -> None:
    """End all other sessions of the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@asynccontextmanager
async def read_only(postgres: Cluster, url: str) -> AsyncIterator[None]:
    """Refuse writes, like a server that became a replica in a failover."""
    name = str(make_url(url).database)
    for value in ("on", "off"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}".encode())
        end_sessions(url)
        if value == "on":
            yield


@asynccontextmanager
async def terminating(postgres: Cluster, url: str) -> AsyncIterator[None]:
    async def end_again() -> None:
        while True:
            end_sessions(url)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(end_again())
    yield
    task.cancel()


@asynccontextmanager
async def stopped(postgres: Cluster, url: str) -> AsyncIterator[None]:
    postgres.down()
    yield
    postgres.up()


@asynccontextmanager
async def frozen(postgres: Cluster, url: str) -> AsyncIterator[None]:
    with postgres.frozen():
        yield


Trouble = Callable[[Cluster, str], AbstractAsyncContextManager[None]]


@pytest.mark.parametrize("trouble", [read_only, terminating, stopped, frozen])
async def test_job_continues_after_a_postgres_failure(
    postgres: Cluster, tmp_path: Path, trouble: Trouble
) -> None:
    url, log = postgres.database(), tmp_path / "log"
    async with (
        idle_replica(url) as outside,
        worker(url, log, slow_s=0.02),
        worker(url, log, slow_s=0.02),
    ):
        hold(log, after=ROWS // 3)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_asked(log, ROWS // 3 + SLOTS)
        async with trouble(postgres, url):
            go_on(log)
            await asyncio.sleep(TROUBLE_S)
        ended = await final(outside, job)
        drawn = [request.prompt for request in requests(log)]
        assert set(drawn) == {f"question {i}" for i in range(ROWS)}
        assert len(drawn) <= ROWS + 2 * SLOTS
        later, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions(activate="always"))
        await final(outside, later)
    assert ended.parameters == (await undisturbed(tmp_path, ROWS)).parameters
