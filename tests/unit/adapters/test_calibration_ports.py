"""The ports of jobs and calibrations: one class of tests each, for the fake and for the real ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.calibration.calibration import CalibrateOptions
from service.calibration.rows import DevRow
from service.calibration.store import ActiveCalibrations, SqlCalibrations
from service.errors import Conflict, InvalidDevData
from service.store.database import Database
from tests.support.calibrations import calibration, rows
from tests.support.memory_store import MemoryCalibrations, MemoryJobs

OPTIONS = CalibrateOptions(name="a name")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def memory_calibrations(_: Path) -> AsyncIterator[MemoryCalibrations]:
    yield MemoryCalibrations()


@asynccontextmanager
async def sql_calibrations(folder: Path) -> AsyncIterator[SqlCalibrations]:
    database = Database(f"sqlite:///{folder / 'store.db'}")
    await database.start()
    active = ActiveCalibrations(database, poll_s=60)
    await active.start()
    try:
        yield SqlCalibrations(database, active)
    finally:
        await active.stop()
        await database.stop()


@asynccontextmanager
async def memory_jobs(_: Path) -> AsyncIterator[MemoryJobs]:
    yield MemoryJobs()


@pytest.mark.anyio
@pytest.mark.parametrize("opened", [memory_calibrations, sql_calibrations])
class TestCalibrationStore:
    async def test_what_is_stored_is_found(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            older, newer = calibration(), calibration()
            for each in (older, newer):
                await store.add(each, {"risk": 1.5})
            assert await store.get(older.id) == older
            assert await store.report(older.id) == {"risk": 1.5}
            assert [record.calibration for record in await store.list_all()] == [newer, older]
            record = await store.record(older.id)
            assert (record.active, record.activated_at, record.data_kept) == (False, None, False)
            assert [row async for row in store.rows(older.id)] == []
            with pytest.raises(Conflict):
                await store.add(older, {})

    async def test_what_is_not_there_is_none(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            assert await store.get("cal_none") is None
            assert await store.record("cal_none") is None
            assert await store.activate("cal_none") is None
            assert await store.report("cal_none") is None
            assert await store.forget_data("cal_none") is False
            assert [row async for row in store.rows("cal_none")] == []
            assert (store.active("none"), store.any_active()) == (None, [])

    async def test_one_is_active_per_fingerprint_and_the_way_back_is_open(
        self, opened: Any, tmp_path: Path
    ) -> None:
        async with opened(tmp_path) as store:
            older, newer, caller = calibration(), calibration(), calibration(source="caller")
            for each in (older, newer, caller):
                await store.add(each, {})
            for each in (older, newer, older, caller):
                record = await store.activate(each.id)
                assert (record.active, record.calibration) == (True, each)
                assert record.activated_at is not None
                assert store.active(each.fingerprint.key()) == each
            assert store.any_active() == [caller, older]
            assert [record.calibration for record in await store.list_active()] == [older, caller]
            assert not (await store.record(newer.id)).active

    async def test_activating_the_active_one_changes_nothing(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            made = calibration()
            await store.add(made, {})
            first = await store.activate(made.id)
            assert first is not None and first.active
            assert await store.activate(made.id) == first

    async def test_data_can_be_forgotten_though_there_are_none(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            made = calibration()
            await store.add(made, {})
            assert await store.forget_data(made.id)
            assert not (await store.record(made.id)).data_kept


@pytest.mark.anyio
@pytest.mark.parametrize("opened", [memory_jobs])
class TestJobQueue:
    async def test_a_job_is_found(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as queue:
            job, created = await queue.submit(rows(), OPTIONS)
            assert (created, job.kind, job.name, job.total) == (True, "calibrate", "a name", 40)
            assert (await queue.get(job.id)).id == job.id
            other, _ = await queue.submit(rows(), OPTIONS)
            assert [found.id for found in await queue.latest()] == [other.id, job.id]
            assert [found.id for found in await queue.latest(limit=1)] == [other.id]

    async def test_rows_may_come_asynchronously(self, opened: Any, tmp_path: Path) -> None:
        async def coming() -> AsyncIterator[DevRow]:
            for row in rows():
                yield row

        async with opened(tmp_path) as queue:
            first, _ = await queue.submit(coming(), OPTIONS, idempotency_key="key")
            again, created = await queue.submit(rows(), OPTIONS, idempotency_key="key")
            assert (again.id, created) == (first.id, False)

    async def test_a_key_with_other_content_is_a_conflict(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as queue:
            await queue.submit(rows(), OPTIONS, idempotency_key="key")
            with pytest.raises(Conflict):
                await queue.submit(rows(41), OPTIONS, idempotency_key="key")
            with pytest.raises(Conflict):
                await queue.submit(rows(), CalibrateOptions(seed=1), idempotency_key="key")

    async def test_what_cannot_be_fitted_is_refused(self, opened: Any, tmp_path: Path) -> None:
        mixed = [*rows(40), DevRow(41, None, ("r",), prompt="p", samples=("a", "b"))]
        async with opened(tmp_path) as queue:
            for refused in (rows(29), mixed):
                with pytest.raises(InvalidDevData):
                    await queue.submit(refused, OPTIONS)
            with pytest.raises(InvalidDevData):
                await queue.submit(rows(samples=("a", "b")), CalibrateOptions(num_samples=3))
            assert await queue.latest() == []
            await queue.submit(mixed, CalibrateOptions(drawn_by="service"))

    async def test_cancelling_twice_is_no_error_and_ends_the_events(
        self, opened: Any, tmp_path: Path
    ) -> None:
        async with opened(tmp_path) as queue:
            job, _ = await queue.submit(rows(), OPTIONS)
            watched = asyncio.create_task(_states(queue, job.id))
            for _ in range(2):
                assert (await queue.cancel(job.id)).state == "cancelled"
            async with asyncio.timeout(60):
                assert (await watched)[-1] == "cancelled"

    async def test_what_is_not_there_is_none(self, opened: Any, tmp_path: Path) -> None:
        async with opened(tmp_path) as queue:
            assert await queue.get("job_none") is None
            assert await queue.cancel("job_none") is None
            assert await _states(queue, "job_none") == []


async def _states(queue: Any, job_id: str) -> list[str]:
    return [job.state async for job in queue.events(job_id)]
