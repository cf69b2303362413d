"""A database that accepts calls but does not answer: which callers wait, and for how long."""

import asyncio
from pathlib import Path

import pytest

from service.calibration.store import SqlCalibrations
from service.errors import StoreUnavailable
from service.scoring.score import ScoreCommand
from service.scoring.scorer import Scorer
from service.store.database import Database
from service.store.keys import SqlKeys
from tests.support.calibrations import add, calibration
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.postgres import Cluster


async def test_slow_call_times_out_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.database.ANSWER_S", 0.01)
    database, go = Database(f"sqlite:///{tmp_path / 'store.db'}"), asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise StoreUnavailable("late")

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await database.soon(fail())
    go.set()
    await database.stop()
    with pytest.raises(StoreUnavailable, match="late"):
        await database.soon(fail())


@pytest.mark.postgres
async def test_a_score_that_names_a_calibration_does_not_wait_for_a_frozen_server(postgres: Cluster) -> None:
    database = Database(postgres.database())
    await database.start()
    source = SqlCalibrations(database, poll_s=3600)
    await source.start()
    scorer = Scorer(FakeLLM(), FakeEmbedder(16), source)
    used, unused = calibration(), calibration()
    try:
        for made in (used, unused):
            await add(source, made, {})
        named = [ScoreCommand(2, samples=("a", "b"), calibration=made.id) for made in (used, unused)]
        await scorer.score(named[0])
        with postgres.frozen():
            async with asyncio.timeout(60):
                await scorer.score(named[0])  # a recently used one is served from memory
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match="does not answer"):
                        await scorer.score(named[1])
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    await SqlKeys(database).list_all()
        async with asyncio.timeout(60):
            while True:
                try:
                    await scorer.score(named[1])
                    break
                except StoreUnavailable:
                    continue
    finally:
        await source.stop()
        await database.stop()
