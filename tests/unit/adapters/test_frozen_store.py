"""A database that takes calls and answers none: what is waited for, and for how long."""

import asyncio

import pytest
from service.store.location import Bounded

from service.calibration.store import ActiveCalibrations, SqlCalibrations
from service.errors import StoreUnavailable
from service.scoring.command import ScoreCommand
from service.scoring.scorer import Scorer
from service.store.database import Database
from tests.support.calibrations import calibration
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def test_a_call_that_takes_too_long_is_given_up_and_shared() -> None:
    bounded, go, made = Bounded(0.05), asyncio.Event(), []

    async def slow() -> str:
        made.append(1)
        await go.wait()
        return "there"

    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await bounded.call("key", slow)
    assert len(made) == 1
    late = asyncio.ensure_future(bounded.call("key", slow))
    await asyncio.sleep(0)
    go.set()
    assert await late == "there"
    assert await bounded.call("key", slow) == "there"
    assert len(made) == 2


async def test_a_call_that_fails_after_it_was_given_up_leaves_no_trace() -> None:
    bounded, go = Bounded(0.01), asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise StoreUnavailable("late")

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await bounded.call("key", fail)
    go.set()
    with pytest.raises(StoreUnavailable, match="late"):
        await bounded.call("key", fail)


@pytest.mark.postgres
async def test_a_score_that_names_a_calibration_does_not_wait_for_a_frozen_server(postgres: Cluster) -> None:
    database = Database(postgres.database(), answer_s=0.5)
    await database.start()
    active = ActiveCalibrations(database, poll_s=3600)
    await active.start()
    source = SqlCalibrations(database, active)
    scorer = Scorer(FakeLLM(), FakeEmbedder(16), source)
    used, unused = calibration(), calibration()
    try:
        for made in (used, unused):
            await source.add(made, {})
        named = [ScoreCommand(samples=("a", "b"), calibration=made.id) for made in (used, unused)]
        await scorer.score(named[0])
        with postgres.frozen():
            async with asyncio.timeout(60):
                await scorer.score(named[0])  # one used lately is served from memory
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match="does not answer"):
                        await scorer.score(named[1])
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    await database.check()
        async with asyncio.timeout(60):
            while True:
                try:
                    await scorer.score(named[1])
                    break
                except StoreUnavailable:
                    continue
    finally:
        await active.stop()
        await database.stop()


@pytest.mark.postgres
async def test_a_server_that_takes_no_writes_fails_the_check(postgres: Cluster) -> None:
    database = Database(postgres.database())
    await database.start()
    await database.check()
    async with database.write() as connection:
        read_only = f"ALTER DATABASE {database.url.database} SET default_transaction_read_only = on"
        await connection.exec_driver_sql(read_only)
    await database.stop()
    await database.start()  # for connections made from now on
    try:
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await database.check()
    finally:
        await database.stop()
