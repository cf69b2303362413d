"""The queue of jobs: outcomes, cancelling, events, leases; on an engine of plain tasks, and on DBOS."""

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from service.store.replicas import Replicas

from service.calibration.calibration import CalibrateOptions
from service.calibration.store import ActiveCalibrations
from service.errors import Conflict, ModelNotFound, StoreUnavailable
from service.jobs.durable import TELL_S, DurableJobs
from service.jobs.model import Job, JobError, Setup
from service.jobs.store import ClaimedJob, Lease, LeaseLostError, SqlJobs
from service.jobs.workflows import DbosEngine, JobEngine, jobs_url
from service.store.database import Database
from tests.support.calibrations import calibration, rows
from tests.support.task_engine import TaskEngine

pytestmark = pytest.mark.anyio
Step = Callable[[ClaimedJob], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class ScriptedPipeline:
    """Does what a test says in `draw`; `finish` stores a calibration."""

    def __init__(self, store: SqlJobs) -> None:
        self.store = store
        self.drawing: Step | None = None
        self.calls: list[str] = []

    async def draw(self, job: ClaimedJob) -> None:
        self.calls.append("draw")
        await self.store.progress(job.lease, "sampling", 1, 2, 3.0, "")
        if self.drawing is not None:
            await self.drawing(job)

    async def finish(self, job: ClaimedJob) -> None:
        self.calls.append("finish")
        await self.store.succeed(job.lease, calibration(), {}, job.num_rows, activate=False)


class Queue:
    def __init__(self, database: Database, engine: JobEngine, beat_s: float = 0.02) -> None:
        self.database = database
        self.engine = engine
        self.store = SqlJobs(database, ActiveCalibrations(database))
        self.pipeline = ScriptedPipeline(self.store)
        self.replicas = Replicas(database, "me", self.store.setup.keys(), beat_s=0.02, lease_s=1.0)
        self.jobs = DurableJobs(
            self.store, self.replicas, self.pipeline, engine, owner="me", beat_s=beat_s, poll_s=0.01
        )

    async def submit(self) -> Job:
        job, created = await self.jobs.submit(rows(), CalibrateOptions())
        assert created
        return job

    async def ended(self, job: Job) -> list[Job]:
        async with asyncio.timeout(60):
            return [state async for state in self.jobs.events(job.id)]


@asynccontextmanager
async def opened(
    path: Path, engine: Callable[[Database], JobEngine], beat_s: float = 0.02
) -> AsyncIterator[Queue]:
    database = Database(f"sqlite:///{path}")
    await database.start()
    queue = Queue(database, engine(database), beat_s)
    await queue.jobs.start()
    try:
        yield queue
    finally:
        await queue.jobs.stop()
        await queue.jobs.stop()
        await database.stop()


def plain(database: Database) -> JobEngine:
    return TaskEngine()


def dbos(database: Database) -> JobEngine:
    return DbosEngine(jobs_url(database.url), executor_id="me", lanes=Setup().keys())


@pytest.fixture(params=[plain, dbos])
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    async with opened(tmp_path / "store.db", request.param) as made:
        yield made


async def test_a_job_succeeds(queue: Queue) -> None:
    job = await queue.submit()
    states = await queue.ended(job)
    assert states[-1].state == "succeeded"
    assert states[-1].calibration_id is not None
    assert states[-1].started_at is not None
    assert queue.pipeline.calls == ["draw", "finish"]
    assert await queue.jobs.get(job.id) == states[-1]
    assert await queue.jobs.latest(limit=5) == [states[-1]]
    assert states == sorted(set(states), key=states.index)  # no state told twice


@pytest.mark.parametrize("engine", [plain, dbos])
async def test_a_job_that_comes_as_the_service_stops_does_not_hold_it_up(
    tmp_path: Path, engine: Callable[[Database], JobEngine]
) -> None:
    async with opened(tmp_path / "store.db", engine, beat_s=5.0) as queue:
        await queue.ended(await queue.submit())  # by now it waits for news, for seconds
        await queue.submit()
        async with asyncio.timeout(60):
            await queue.jobs.stop()  # in the same step of the loop in which the news came


async def test_a_watcher_that_goes_breaks_no_query_off(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job, began, go, answered = await queue.submit(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def get(job_id: str) -> Job:
        began.set()
        await go.wait()
        answered.set()
        return job

    monkeypatch.setattr(queue.store, "get", get)
    watcher = asyncio.ensure_future(anext(queue.jobs.events(job.id)))
    async with asyncio.timeout(60):
        await began.wait()
        watcher.cancel()
        await asyncio.wait({watcher})
        go.set()
        await answered.wait()


async def test_many_watchers_of_a_job_ask_the_store_as_one(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked, go = await queue.submit(), [], asyncio.Event()
    get = queue.store.get

    async def counted(job_id: str) -> Job | None:
        asked.append(job_id)
        await go.wait()
        return await get(job_id)

    monkeypatch.setattr(queue.store, "get", counted)
    watchers = [asyncio.create_task(queue.ended(job)) for _ in range(100)]
    while not asked:
        await asyncio.sleep(0)
    assert len(asked) == 1
    go.set()
    for states in await asyncio.gather(*watchers):
        assert states[-1].state == "succeeded"


async def test_an_error_for_the_caller_ends_the_job(queue: Queue) -> None:
    async def fail(job: ClaimedJob) -> None:
        raise ModelNotFound("The LLM server does not serve this model.")

    queue.pipeline.drawing = fail
    last = (await queue.ended(await queue.submit()))[-1]
    assert (last.state, last.error) == (
        "failed",
        JobError("model_not_found", "The LLM server does not serve this model."),
    )
    assert queue.pipeline.calls == ["draw"]


async def test_any_other_error_tells_the_caller_nothing(queue: Queue) -> None:
    async def fail(job: ClaimedJob) -> None:
        raise RuntimeError("secret")

    queue.pipeline.drawing = fail
    last = (await queue.ended(await queue.submit()))[-1]
    assert last.error is not None
    assert last.error.code == "internal"
    assert "secret" not in last.error.detail


async def test_cancelling_stops_the_work(queue: Queue) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    queue.pipeline.drawing = hang
    job = await queue.submit()
    async with asyncio.timeout(60):
        await begun.wait()
        cancelled = await queue.jobs.cancel(job.id)
        assert cancelled is not None
        assert cancelled.state == "cancelled"
        await stopped.wait()
    assert (await queue.ended(job))[-1].state == "cancelled"
    queue.pipeline.drawing = None
    after = await queue.ended(await queue.submit())  # the queue is free again
    assert after[-1].state == "succeeded"
    with pytest.raises(Conflict):
        await queue.jobs.cancel(after[-1].id)
    assert await queue.jobs.cancel("job_none") is None
    assert await queue.jobs.get("job_none") is None
    assert [state async for state in queue.jobs.events("job_none")] == []


async def test_work_that_fails_while_it_is_cancelled_logs_nothing(queue: Queue) -> None:
    """A write that is under way finds the job cancelled: nobody is left to hear of it."""
    begun, stopped, said = asyncio.Event(), asyncio.Event(), []

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise LeaseLostError(job.lease.job_id) from None

    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    queue.pipeline.drawing = hang
    job = await queue.submit()
    async with asyncio.timeout(60):
        await begun.wait()
        await queue.jobs.cancel(job.id)
        await stopped.wait()
    queue.pipeline.drawing = None
    await queue.ended(await queue.submit())
    gc.collect()
    assert said == []


async def test_a_store_that_fails_for_a_while_fails_no_job(queue: Queue) -> None:
    failures = iter([StoreUnavailable("down")] * 3)

    async def stumble(job: ClaimedJob) -> None:
        for failure in failures:
            raise failure

    queue.pipeline.drawing = stumble
    assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"
    assert queue.pipeline.calls == ["draw"] * 4 + ["finish"]


async def test_a_run_that_loses_its_lease_stops(queue: Queue) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def write(job: ClaimedJob) -> None:
        begun.set()
        try:
            while True:
                await queue.store.progress(job.lease, "sampling", 1, 2, None, "")
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    queue.pipeline.drawing = write
    job = await queue.submit()
    async with asyncio.timeout(60):
        await begun.wait()
        taken = await queue.store.claim(job.id, "peer")
        assert taken is not None
        await queue.store.progress(taken.lease, "sampling", 2, 2, None, "")
        await stopped.wait()
    state = await queue.jobs.get(job.id)
    assert state is not None
    assert (state.state, state.error) == ("running", None)


async def test_jobs_run_one_after_the_other(queue: Queue) -> None:
    inside = most = 0

    async def count(job: ClaimedJob) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        inside -= 1

    queue.pipeline.drawing = count
    for job in [await queue.submit() for _ in range(3)]:
        assert (await queue.ended(job))[-1].state == "succeeded"
    assert most == 1


async def test_a_job_that_nobody_runs_is_revived(queue: Queue) -> None:
    """Taken in by a replica that died before it could say so to the engine, and one that died at work."""
    silent, _ = await queue.store.submit(rows(), CalibrateOptions())
    assert (await queue.ended(silent))[-1].state == "succeeded"
    dead, _ = await queue.store.submit(rows(), CalibrateOptions())
    assert await queue.store.claim(dead.id, "dead") is not None
    assert (await queue.ended(dead))[-1].state == "succeeded"


async def test_a_job_broken_off_goes_on_at_the_next_start(tmp_path: Path) -> None:
    begun = asyncio.Event()
    leases: list[Lease] = []

    async def hang(job: ClaimedJob) -> None:
        leases.append(job.lease)
        begun.set()
        await asyncio.Event().wait()

    async with opened(tmp_path / "store.db", dbos) as first:
        first.pipeline.drawing = hang
        job = await first.submit()
        async with asyncio.timeout(60):
            await begun.wait()
    async with opened(tmp_path / "store.db", dbos) as second:
        assert (await second.ended(job))[-1].state == "succeeded"
        # A part may be run again (the engine and the watcher both take up what was left), never left out.
        assert second.pipeline.calls[-2:] == ["draw", "finish"]
        assert set(second.pipeline.calls[:-1]) == {"draw"}
    assert len(leases) == 1


async def test_one_dbos_in_a_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "one.db", dbos) as queue:
        with pytest.raises(RuntimeError, match="one engine"):
            await dbos(queue.database).start(queue.jobs._run)


async def test_an_engine_that_could_not_be_started_is_started_later(tmp_path: Path) -> None:
    """A disk that is full for a while, a file that is none: the next start is as the first."""
    engine, path = dbos(Database(f"sqlite:///{tmp_path}/store.db")), tmp_path / "store.db.jobs"

    async def run(job_id: str) -> None:
        raise AssertionError(job_id)

    path.write_bytes(b"no database " * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await engine.start(run)
    path.unlink()
    await engine.start(run)
    try:
        await engine.check()
    finally:
        await engine.stop()


async def test_an_engine_that_lost_its_file_is_started_anew(tmp_path: Path) -> None:
    """What it kept is lost with the file; the store knows which jobs are open."""
    begun = asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with opened(tmp_path / "store.db", dbos) as queue:
        queue.pipeline.drawing = hang
        running = await queue.submit()
        waiting = await queue.submit()
        async with asyncio.timeout(60):
            await begun.wait()
            queue.pipeline.drawing = None
            (tmp_path / "store.db.jobs").unlink()
            with pytest.raises(StoreUnavailable, match="job engine"):
                await queue.jobs.check()
            while not (tmp_path / "store.db.jobs").exists():
                await asyncio.sleep(0.02)
        for job in (running, waiting):
            assert (await queue.ended(job))[-1].state == "succeeded"
        assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"


async def test_a_job_whose_workflow_ended_without_it_is_begun_anew(tmp_path: Path) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with opened(tmp_path / "store.db", dbos) as queue:
        queue.pipeline.drawing = hang
        job = await queue.submit()
        async with asyncio.timeout(60):
            await begun.wait()
            queue.pipeline.drawing = None
            await queue.engine.cancel(job.id)  # not through the store
            await stopped.wait()
        assert (await queue.ended(job))[-1].state == "succeeded"


async def test_cancelling_does_not_wait_for_an_engine_that_is_held_up(tmp_path: Path) -> None:
    """DBOS waits for its locked file for many seconds; it is told once the file is free."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with opened(tmp_path / "store.db", dbos) as queue:
        queue.pipeline.drawing = hang
        job = await queue.submit()
        async with asyncio.timeout(60):
            await begun.wait()
        with closing(sqlite3.connect(tmp_path / "store.db.jobs", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(TELL_S + 15):
                cancelled = await queue.jobs.cancel(job.id)
            assert cancelled is not None
            assert cancelled.state == "cancelled"
            assert not stopped.is_set()
        async with asyncio.timeout(60):
            await stopped.wait()


async def test_a_cancelled_job_leaves_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """DBOS logs an error for each workflow that is cancelled, unless it is kept from that."""
    begun = asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def write(job: ClaimedJob) -> None:
        begun.set()
        while True:
            await asyncio.sleep(0.01)
            await queue.store.progress(job.lease, "sampling", 1, 2, None, "")

    async with opened(tmp_path / "store.db", dbos) as queue:
        for drawing in (hang, write):
            begun.clear()
            queue.pipeline.drawing = drawing
            job = await queue.submit()
            async with asyncio.timeout(60):
                await begun.wait()
            await queue.jobs.cancel(job.id)
        queue.pipeline.drawing = None
        assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"
    assert capfd.readouterr().err == ""


async def test_what_a_dead_executor_ran_is_resumed_and_what_waits_is_left(tmp_path: Path) -> None:
    from dbos import DBOS

    begun = asyncio.Event()

    async def hang(job: ClaimedJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    def owned() -> dict[str, str]:
        return {one.workflow_id: one.status for one in DBOS.list_workflows()}

    async with opened(tmp_path / "store.db", dbos) as queue:
        queue.pipeline.drawing = hang
        running, waiting = await queue.submit(), await queue.submit()
        lane = queue.store.setup.keys()[0]
        jobs = {running.id: lane, waiting.id: lane}
        async with asyncio.timeout(60):
            await begun.wait()
            while len(await asyncio.to_thread(owned)) < 2:
                await asyncio.sleep(0.01)
        before = await asyncio.to_thread(owned)
        assert before == {f"{running.id}-0": "PENDING", f"{waiting.id}-0": "ENQUEUED"}
        await queue.engine.settle(jobs, {"me"})
        assert await asyncio.to_thread(owned) == before
        await queue.engine.settle(jobs, {"peer"})
        assert await asyncio.to_thread(owned) == before | {f"{running.id}-0": "ENQUEUED"}
