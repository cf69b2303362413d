"""The store: the same tests on SQLite and, if available, on a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations, make_current
from service.errors import Conflict, StoreUnavailable
from service.jobs.model import JobError, JobOptions, Setup
from service.jobs.store import JobEndedError, ReplacedError, SqlJobs
from service.llm.samples import Draw
from service.store.database import (
    Database,
    activations,
    calibrations,
    dev_rows,
    jobs,
    metadata,
    shown,
    store_url,
    sync_url,
)
from tests.support.calibrations import NASTY, add, calibration, fingerprint, rows
from tests.support.postgres import Cluster

OPTIONS = JobOptions(name=NASTY)


@dataclass
class Store:
    database: Database
    jobs: SqlJobs
    calibrations: SqlCalibrations


@asynccontextmanager
async def opened(url: str, **kwargs: Any) -> AsyncIterator[Store]:
    database = Database(url)
    await database.start()
    calibrations = SqlCalibrations(database, poll_s=0.01, **kwargs)
    await calibrations.start()
    try:
        yield Store(database, SqlJobs(database, calibrations), calibrations)
    finally:
        await calibrations.stop()
        await database.stop()


async def count(store: Store, table: sa.Table) -> int:
    async with store.database.read() as connection:
        return (await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one()


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


class TestStore:
    async def test_concurrent_uploads_with_one_key_give_one_job(self, url: str) -> None:
        async with opened(url) as store:
            both = await asyncio.gather(*(store.jobs.submit(rows(), OPTIONS, "key") for _ in range(4)))
            assert len({job.id for job, _ in both}) == 1
            assert sum(created for _, created in both) == 1
            assert await count(store, dev_rows) == 40

    async def test_samples_are_stored_and_only_missing_rows_are_listed(self, url: str) -> None:
        async with opened(url) as store:
            job, _ = await store.jobs.submit(rows(), OPTIONS)
            await store.jobs.begin(job.id)
            draws = [Draw("a", True, -0.5, -1.5, 3), Draw(NASTY)]
            await store.jobs.keep_draws(job.id, 1, draws, complete=True)
            await store.jobs.keep_draws(job.id, 2, draws[:1], complete=False)
            await store.jobs.refuse(job.id, 3, NASTY)
            # By a frozen run that resumes.
            await store.jobs.keep_draws(job.id, 1, [Draw("late")], complete=True)
            await store.jobs.refuse(job.id, 1, "late")
            await store.jobs.refuse(job.id, 3, "late")
            kept = await store.jobs.rows(job.id)
            state = await store.jobs.get(job.id)
            assert await store.jobs.missing_lines(job.id) == [2, *range(4, 41)]
            assert await store.jobs.row(job.id, 2) == kept[1]
        assert kept[0].draws == tuple(draws)
        assert kept[0].samples is None
        assert (kept[1].draws, kept[1].complete) == ((Draw("a", True, -0.5, -1.5, 3),), False)
        assert kept[2].refused == NASTY
        assert state is not None
        assert state.done == 2

    async def test_a_job_that_has_ended_takes_no_more_writes(self, url: str) -> None:
        async with opened(url) as store:
            job, _ = await store.jobs.submit(rows(samples=("a", "b")), OPTIONS)
            await store.jobs.begin(job.id)
            await store.jobs.begin(job.id)  # a second run changes nothing
            made = calibration()
            await store.jobs.succeed(job.id, made, {}, 40, activate=False)
            ended = await store.jobs.get(job.id)
            for write in (
                store.jobs.stage(job.id, "sampling", 9),
                store.jobs.progress(job.id, 9),
                store.jobs.note(job.id, "late"),
                store.jobs.keep_draws(job.id, 1, [Draw("late")], complete=True),
                store.jobs.succeed(job.id, calibration(), {}, 40, activate=True),
                store.jobs.fail(job.id, JobError(code="internal", detail="late")),
                store.jobs.running(job.id),
            ):
                with pytest.raises(JobEndedError):
                    await write
            assert await store.jobs.get(job.id) == ended
            assert [item.calibration for item in await store.calibrations.list_all()] == [made]

    async def test_remaining_time_follows_the_pace_of_the_stage(self, url: str) -> None:
        async with opened(url) as store:
            job, _ = await store.jobs.submit(rows(), OPTIONS)
            await store.jobs.begin(job.id)
            await store.jobs.note(job.id, "wait")
            await store.jobs.stage(job.id, "sampling", 40, 10)
            before = await store.jobs.get(job.id)
            await store.jobs.progress(job.id, 20)
            async with store.database.write() as connection:
                began = before.started_at - timedelta(seconds=100)
                values = {"stage_began_at": began, "progressed_at": before.started_at}
                await connection.execute(sa.update(jobs).values(values))
            after = await store.jobs.get(job.id)
        assert (before.stage, before.done, before.total, before.note) == ("sampling", 10, 40, "")
        assert before.eta_s is None
        assert after.eta_s == pytest.approx(200)

    async def test_failed_job_is_retried_with_the_settings_of_its_answers(self, url: str) -> None:
        async def failed(store: Store, *, drawn: bool) -> str:
            job, _ = await store.jobs.submit(rows(), OPTIONS)
            await store.jobs.begin(job.id)
            if drawn:
                await store.jobs.bind(job.id, fingerprint())
            await store.jobs.fail(job.id, JobError(code="model_not_found", detail="No such model."))
            return job.id

        async with opened(url) as store:
            store.jobs.setup = before = Setup({"embedder": "e"}, {"model": "m", "top_k": 0})
            drawn, bare = await failed(store, drawn=True), await failed(store, drawn=False)
            store.jobs.setup = now = Setup({"embedder": "e"}, {"model": "m2", "top_k": 0})
            with pytest.raises(Conflict, match="differ: model"):
                await store.jobs.retry(drawn)
            assert await store.jobs.retry(bare) == bare
            store.jobs.setup = before
            assert await store.jobs.retry(drawn) == drawn
            assert await store.jobs.open_jobs() == {drawn: before.keys()[0]}
            store.jobs.setup = now
            assert await store.jobs.open_jobs() == {bare: now.keys()[0]}
            waiting = await store.jobs.get(drawn)
            assert waiting is not None
            assert "differ: model" in waiting.note
            await store.jobs.begin(drawn)
            assert (await store.jobs.running(drawn)).fingerprint == fingerprint()

    async def test_failed_job_keeps_its_answers_until_cancelled(self, url: str) -> None:
        async with opened(url) as store:
            job, _ = await store.jobs.submit(rows(), OPTIONS)
            await store.jobs.begin(job.id)
            await store.jobs.keep_draws(job.id, 1, [Draw("drawn")], complete=True)
            await store.jobs.fail(job.id, JobError(code="model_not_found", detail="No such model."))
            failed = await store.jobs.get(job.id)
            assert failed is not None
            assert failed.error == JobError(code="model_not_found", detail="No such model.")
            assert [j.id for j in await store.jobs.latest()] == [job.id]
            kept = [row.draws for row in await store.jobs.rows(job.id)]
            assert (kept[0], len(kept)) == ((Draw("drawn"),), 40)
            given_up = await store.jobs.cancel(job.id)
            assert given_up is not None
            assert (given_up.state, await count(store, dev_rows)) == ("cancelled", 0)
            with pytest.raises(Conflict, match="cancelled"):
                await store.jobs.retry(job.id)

    async def test_calibration_compared_with_an_outdated_one_is_not_activated(self, url: str) -> None:
        """Another job or an operator may activate one between comparison and end."""
        async with opened(url) as store:
            job, _ = await store.jobs.submit(rows(samples=("a", "b")), OPTIONS)
            await store.jobs.begin(job.id)
            theirs, calibration_ = calibration(), calibration(temperature=3.0)
            key = calibration_.fingerprint.key()
            await add(store.calibrations, theirs, {})
            async with store.database.write() as connection:  # like another replica
                await make_current(connection, theirs.id, key, by="peer", reason="")
            with pytest.raises(ReplacedError):
                await store.jobs.succeed(job.id, calibration_, {}, 40, activate=True, compared_at=0)
            assert await store.calibrations.get(calibration_.id) is None
            await store.jobs.succeed(job.id, calibration_, {}, 40, activate=True, compared_at=1)
            assert store.calibrations.active(key) == calibration_

    async def test_activation_back_and_forth(self, url: str) -> None:
        async with opened(url) as store:
            older, newer, other = calibration(), calibration(temperature=3), calibration("other")
            for each in (older, newer, other):
                await add(store.calibrations, each, {})
            assert await store.calibrations.list_active() == []
            for each in (other, older, newer, older):
                await store.calibrations.activate(each.id)
                assert store.calibrations.active(each.fingerprint.key()) == each
            assert store.calibrations.any_active() == [older, other]
            assert [r.calibration for r in await store.calibrations.list_all()] == [other, newer, older]
            assert await store.calibrations.get(newer.id) == newer
            assert await store.calibrations.get("cal_none") is None
            assert await store.calibrations.activate("cal_none") is None
            assert await store.calibrations.report("cal_none") is None

    async def test_calibration_of_the_own_setup_is_preferred(self, url: str) -> None:
        own, old, caller = calibration("own"), calibration("old"), calibration("", source="caller")
        async with opened(url, own_keys=lambda: [own.fingerprint.key()]) as store:
            for each in (own, old, caller):
                await add(store.calibrations, each, {})
                await store.calibrations.activate(each.id)
            assert [r.calibration for r in await store.calibrations.list_active()] == [own, old, caller]

    async def test_concurrent_activations_leave_one_active(self, url: str) -> None:
        async with opened(url) as store, opened(url) as peer:
            made = [calibration(temperature=t) for t in (1.0, 2.0, 3.0, 4.0)]
            for each in made:
                await add(store.calibrations, each, {})
            sides = [store, peer, store, peer]
            await asyncio.gather(*(s.calibrations.activate(c.id) for s, c in zip(sides, made, strict=True)))
            active = await store.calibrations.list_active()
            await until(lambda: store.calibrations.any_active() == peer.calibrations.any_active())
        assert len(active) == 1

    async def test_two_replicas_start_concurrently(self, url: str) -> None:
        async def start() -> None:
            async with opened(url) as store:
                assert await store.jobs.open_jobs() == {}

        await asyncio.gather(start(), start(), start())

    async def test_migrations_create_the_tables(self, url: str) -> None:
        async with opened(url):
            pass
        assert await asyncio.to_thread(differences, url) == []


def differences(url: str) -> list[Any]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = sa.create_engine(sync_url(store_url(url)), poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))


def holding(folder: Path, secret: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if secret in file.read_bytes()]


async def test_deleted_data_are_removed_from_all_files(tmp_path: Path) -> None:
    secret = b"a prompt to be forgotten"
    async with opened(f"sqlite:///{tmp_path / 'store.db'}") as store:
        kept = [DevRow(i + 1, None, ("a",), prompt=f"{secret.decode()} {i}" * 20) for i in range(40)]
        job, _ = await store.jobs.submit(kept, OPTIONS)
        await store.jobs.begin(job.id)
        fitted = calibration()
        await store.jobs.succeed(job.id, fitted, {}, 40, activate=False)
        assert holding(tmp_path, secret)
        assert await store.calibrations.forget_data(fitted.id)
        assert holding(tmp_path, secret) == []


async def test_a_database_that_cannot_grow_refuses_a_job(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path / 'store.db'}") as store:
        async with store.database.read() as connection:
            used = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
            await connection.exec_driver_sql(f"PRAGMA max_page_count = {used}")
        with pytest.raises(StoreUnavailable, match="disk of the database is full"):
            await store.jobs.submit(rows(2000), OPTIONS)
        async with store.database.read() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert await store.jobs.latest() == []


async def test_unreadable_calibration_does_not_stop_the_follower(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with opened(url) as here, opened(url) as peer:
        newer, made = calibration("newer"), calibration()
        await add(peer.calibrations, newer, {})
        async with peer.database.write() as connection:
            await connection.execute(sa.update(calibrations).values(body={"version": 2}))
            await make_current(connection, newer.id, newer.fingerprint.key(), by="peer", reason="")
        await until(lambda: "cannot be read" in caplog.text)
        async with peer.database.write() as connection:
            await connection.execute(sa.update(activations).values(current=False))
        await add(peer.calibrations, made, {})
        await peer.calibrations.activate(made.id)
        await until(lambda: here.calibrations.active(made.fingerprint.key()) == made)


async def test_last_known_calibrations_are_served_without_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with opened(url) as store:
        made = calibration()
        await add(store.calibrations, made, {})
        await store.calibrations.activate(made.id)
        await store.database.stop()
        with pytest.raises(StoreUnavailable) as caught:
            await store.jobs.open_jobs()
        assert str(tmp_path) not in caught.value.detail
        await asyncio.sleep(0.05)  # several polls fail during this time
        assert store.calibrations.active(made.fingerprint.key()) == made


@pytest.mark.postgres
async def test_frozen_transaction_does_not_block_its_job(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its peers would wait for the row lock until it resumes."""
    monkeypatch.setattr("service.store.database.IDLE_S", 2.0)
    async with opened(postgres.database()) as store:
        job, _ = await store.jobs.submit(rows(), OPTIONS)
        frozen = Database(store.database.url.render_as_string(hide_password=False))
        await frozen.start()
        is_taken = False
        with pytest.raises(StoreUnavailable):
            async with frozen.write() as connection:
                await connection.execute(sa.update(jobs).values(note="mine"))
                await asyncio.wait_for(store.jobs.begin(job.id), 60)
                is_taken = True
        await frozen.stop()
        assert is_taken


@pytest.mark.postgres
async def test_connection_recovers_after_an_outage(postgres: Cluster) -> None:
    async with opened(postgres.database()) as store:
        await asyncio.to_thread(postgres.down)
        with pytest.raises(StoreUnavailable):
            await store.jobs.open_jobs()
        await asyncio.to_thread(postgres.up)
        await store.jobs.open_jobs()


@pytest.mark.postgres
async def test_unstorable_value_is_not_an_outage(postgres: Cluster) -> None:
    """Otherwise callers would be asked to retry forever."""
    async with opened(postgres.database()) as store:
        job, _ = await store.jobs.submit(rows(), OPTIONS)
        await store.jobs.begin(job.id)
        with pytest.raises(sa.exc.DataError) as caught:
            await store.jobs.progress(job.id, 2**31)
        assert str(2**31) not in str(caught.value)


async def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for url in (f"sqlite:///{tmp_path}/file/store.db", "postgresql://nobody@127.0.0.1:1/none"):
        with pytest.raises(StoreUnavailable) as caught:
            await Database(url).start()
        assert caught.value.detail == f"{shown(store_url(url))}: The database cannot be reached."


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://h/d"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL must"):
        store_url(url)
