"""The job queue: outcomes, cancelling, events and resuming, on an engine of plain tasks and on DBOS."""

import asyncio
import fcntl
import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dbos import DBOS

from service.calibration.store import SqlCalibrations
from service.errors import Conflict, ModelNotFound, StoreUnavailable
from service.jobs import engine as engines
from service.jobs import runner
from service.jobs.calibrator import Drawer
from service.jobs.engine import DbosEngine
from service.jobs.model import Job, JobError, JobOptions
from service.jobs.presence import Presence
from service.jobs.runner import DurableJobs, JobSteps
from service.jobs.store import ReplacedError, RunningJob, SqlJobs
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from service.store.database import Database, store_url
from tests.support.calibrations import calibration, rows
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.following import states
from tests.support.pipeline import QUICK
from tests.support.postgres import Cluster
from tests.support.task_engine import TaskEngine

pytestmark = pytest.mark.usefixtures("bounded")
Work = Callable[[RunningJob], Awaitable[None]]


class Finisher:
    """Runs the test's function, then stores a calibration."""

    def __init__(self, store: SqlJobs) -> None:
        self.store = store
        self.work: Work | None = None
        self.finished: list[str] = []

    async def finish(self, job: RunningJob) -> None:
        if self.work is not None:
            await self.work(job)
        self.finished.append(job.id)
        await self.store.succeed(job.id, calibration(), {}, job.num_rows, activate=False)


class Hanging:
    """Work that never ends."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()

    async def __call__(self, job: RunningJob) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


class Queue:
    def __init__(self, database: Database, engine: DbosEngine, beat_s: float) -> None:
        self.engine = engine
        self.store = SqlJobs(database, SqlCalibrations(database))
        self.finisher = Finisher(self.store)
        self.llm = FakeLLM()
        serving = Serving(2, Sampling(), Sampling())
        drawer = Drawer(self.llm, FakeEmbedder(), self.store, serving, patience=QUICK)
        steps = JobSteps(self.store, drawer, self.finisher.finish, slots=2, wait_s=0.01)
        self.jobs = DurableJobs(self.store, steps, engine, beat_s=beat_s)

    async def submit(self) -> Job:
        job, created = await self.jobs.submit(rows(samples=("a", "b")), JobOptions())
        assert created
        return job

    async def ended(self, job: Job) -> list[Job]:
        return [state async for state in states(self.jobs, job.id)]


@asynccontextmanager
async def opened(
    path: Path, engine: Callable[[Database], DbosEngine], beat_s: float = 0.02
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


def plain(database: Database) -> DbosEngine:
    return TaskEngine()


def dbos(database: Database) -> DbosEngine:
    setup_keys = SqlJobs(database, SqlCalibrations(database)).setup.keys()
    return DbosEngine(database.url, setup_keys=setup_keys)


@pytest.fixture(params=[plain, dbos])
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    async with opened(tmp_path / "store.db", request.param) as made:
        yield made


async def test_job_queued_during_the_stop_does_not_delay_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db", plain, beat_s=5.0) as queue:
        await queue.ended(await queue.submit())  # now it waits for events, for seconds
        await queue.submit()
        await queue.jobs.stop()  # in the same iteration of the loop as the event


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ModelNotFound("The LLM server does not serve this model."), "model_not_found"),
        (RuntimeError("secret"), "internal"),
    ],
)
async def test_error_ends_the_job_with_a_public_message(queue: Queue, raised: Exception, code: str) -> None:
    async def fail(job: RunningJob) -> None:
        raise raised

    queue.finisher.work = fail
    last = (await queue.ended(await queue.submit()))[-1]
    assert (last.state, last.error and last.error.code) == ("failed", code)
    assert isinstance(last.error, JobError)
    assert "secret" not in last.error.detail
    queue.finisher.work = None
    retried = await queue.jobs.queued(await queue.store.retry(last.id))
    assert retried is not None
    assert (await queue.ended(retried))[-1].state == "succeeded"


async def test_calibration_is_compared_anew_if_another_is_activated_meanwhile(queue: Queue) -> None:
    others = iter(range(2))

    async def replaced(job: RunningJob) -> None:
        if next(others, None) is not None:
            raise ReplacedError

    queue.finisher.work = replaced
    job = await queue.submit()
    assert (await queue.ended(job))[-1].state == "succeeded"
    assert queue.finisher.finished == [job.id]


async def test_cancelling_stops_the_work(queue: Queue) -> None:
    hang, complaints = Hanging(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    queue.finisher.work = hang
    job = await queue.submit()
    await hang.begun.wait()
    cancelled = await queue.jobs.cancel(job.id)
    assert cancelled is not None
    assert cancelled.state == "cancelled"
    await hang.stopped.wait()
    assert (await queue.ended(job))[-1].state == "cancelled"
    queue.finisher.work = None
    after = await queue.ended(await queue.submit())  # the queue is free again
    assert after[-1].state == "succeeded"
    with pytest.raises(Conflict):
        await queue.jobs.cancel(after[-1].id)
    assert await queue.jobs.cancel("job_none") is None
    assert await queue.store.get("job_none") is None
    assert [state async for state in states(queue.jobs, "job_none")] == []
    gc.collect()
    assert complaints == []


async def test_cancelling_does_not_wait_for_a_blocked_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def held_up(_: TaskEngine, job_id: str) -> None:
        await asyncio.Event().wait()

    async with opened(tmp_path / "store.db", plain) as queue:
        queue.finisher.work = Hanging()
        job = await queue.submit()
        with monkeypatch.context() as patch:
            patch.setattr(runner, "CANCEL_S", 0.01)
            patch.setattr(TaskEngine, "cancel", held_up)
            cancelled = await queue.jobs.cancel(job.id)
        assert cancelled is not None
        assert cancelled.state == "cancelled"


async def test_failure_that_cannot_be_stored_gets_another_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    stored = SqlJobs.fail

    async def broken(jobs: SqlJobs, job_id: str, error: JobError) -> None:
        nonlocal tried
        tried += 1
        if error.code != "internal" or tried == 1:
            raise RuntimeError("no text that the store takes")
        await stored(jobs, job_id, error)

    database = Database(f"sqlite:///{tmp_path}/store.db")
    await database.start()
    queue = Queue(database, TaskEngine(), 0.02)
    monkeypatch.setattr(SqlJobs, "fail", broken)
    monkeypatch.setattr(queue.finisher, "store", None)  # a bug
    job = await queue.submit()
    await queue.store.begin(job.id)
    assert not await queue.jobs._steps.run("finish", job.id)
    response = await queue.store.get(job.id)
    await database.stop()
    assert response is not None and response.state == "failed" and tried == 2


async def test_interrupted_job_resumes_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hang = Hanging()
    caplog.set_level(logging.INFO, logger="service")
    async with opened(tmp_path / "store.db", dbos) as first:
        first.finisher.work = hang
        job, _ = await first.jobs.submit(rows(), JobOptions())
        await hang.begun.wait()
    async with opened(tmp_path / "store.db", dbos) as second:
        assert (await second.ended(job))[-1].state == "succeeded"
        assert second.finisher.finished == [job.id]
        assert second.llm.requests == []
    assert caplog.messages.count(f"job {job.id} runs on this replica") == 2


async def test_job_of_an_earlier_version_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workflow stays pending forever, and must not occupy the queue of this version."""
    with monkeypatch.context() as earlier:
        earlier.setattr(engines, "WORKFLOW_VERSION", "0")
        async with opened(tmp_path / "store.db", dbos) as first:
            first.llm.gate = asyncio.Event()
            job, _ = await first.jobs.submit(rows(), JobOptions())
            while len(first.llm.requests) < 2:
                await asyncio.sleep(0.01)
    async with opened(tmp_path / "store.db", dbos) as second:
        assert (await second.ended(job))[-1].state == "succeeded"


async def test_only_one_dbos_per_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "one.db", dbos) as queue:
        with pytest.raises(RuntimeError, match="one engine"):
            await DbosEngine(store_url(f"sqlite:///{tmp_path}/two.db"), setup_keys=["x"]).start(
                queue.jobs._steps
            )


async def test_sqlite_file_is_used_by_one_process_only(tmp_path: Path) -> None:
    with (tmp_path / "store.db.owner").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # like another process
        with pytest.raises(StoreUnavailable, match="several replicas need PostgreSQL"):
            async with opened(tmp_path / "store.db", dbos):
                pass
    async with opened(tmp_path / "store.db", dbos):
        pass


async def test_failed_engine_start_is_retried(tmp_path: Path) -> None:
    """For example after a full disk or an invalid file: the next start is like the first."""
    path = tmp_path / "store.db.jobs"
    path.write_bytes(b"no database " * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"store\.db\.jobs: The database file is damaged"):
            async with opened(tmp_path / "store.db", dbos):
                pass
    path.unlink()
    async with opened(tmp_path / "store.db", dbos) as queue:
        assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"


async def test_a_cancelled_job_leaves_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """DBOS logs an error for each cancelled workflow, unless that is prevented."""
    hang = Hanging()

    async def write(job: RunningJob) -> None:
        hang.begun.set()
        while True:
            await asyncio.sleep(0.01)
            await queue.store.progress(job.id, 1)

    async with opened(tmp_path / "store.db", dbos) as queue:
        for work in (hang, write):
            hang.begun.clear()
            queue.finisher.work = work
            job = await queue.submit()
            await hang.begun.wait()
            await queue.jobs.cancel(job.id)
        queue.finisher.work = None
        assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"
    assert capfd.readouterr().err == ""


@pytest.mark.postgres
class TestPresence:
    @pytest.fixture
    async def database(self, postgres: Cluster) -> AsyncIterator[Database]:
        database = Database(postgres.database())
        await database.start()
        yield database
        await database.stop()

    async def test_stopped_or_silent_replica_is_not_alive(self, database: Database) -> None:
        long, short = Presence(database, lease_s=600.0), Presence(database, lease_s=0.2)
        assert await long.beat("one") is None, "a first call does not know the peers"
        assert await long.beat("other") is None
        assert await long.beat("one") == {"one", "other"}
        await long.leave("other")
        assert await long.beat("one") == {"one"}
        await long.beat("silent")
        while "silent" in (await short.beat("one") or ()):
            await asyncio.sleep(0.05)
        assert await long.beat("silent") is None, "a silent replica does not know which peers are alive"
        assert await long.beat("one") == {"one", "silent"}

    async def test_replicas_count_as_alive_if_all_were_silent(self, database: Database) -> None:
        """The store was unavailable to all replicas."""
        presence = Presence(database, lease_s=0.5)
        for replica_id in ("one", "other"):
            await presence.beat(replica_id)
        await asyncio.sleep(1.0)
        assert await presence.beat("one") == {"one", "other"}


async def test_dbos_stops_when_no_job_is_open_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "STOP_AFTER_S", 0.0)
    async with opened(tmp_path / "store.db", dbos) as queue:
        for _ in range(2):
            assert (await queue.ended(await queue.submit()))[-1].state == "succeeded"
            while queue.engine._is_launched:
                await asyncio.sleep(0.01)


async def test_stop_waits_for_a_shutdown_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle shutdown is cancelled, but its thread goes on."""
    begun, release, destroy = threading.Event(), threading.Event(), DBOS.destroy
    running, most = 0, 0

    def slow_destroy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        assert release.wait(60)
        destroy()
        running -= 1

    monkeypatch.setattr(engines, "STOP_AFTER_S", 0.0)
    async with opened(tmp_path / "store.db", dbos) as queue:
        monkeypatch.setattr(DBOS, "destroy", slow_destroy)
        assert await asyncio.to_thread(begun.wait, 60)
        stopping = asyncio.create_task(queue.jobs.stop())
        await asyncio.sleep(0.1)  # enough for a second thread to begin
        release.set()
        await stopping
    assert most == 1


async def test_workflow_without_a_task_resumes(tmp_path: Path) -> None:
    """DBOS leaves a workflow pending if it cannot store the outcome."""
    async with opened(tmp_path / "store.db", dbos) as queue:
        hang = Hanging()
        queue.finisher.work = hang
        job = await queue.submit()
        await hang.begun.wait()
        queue.finisher.work = None
        for task in queue.engine._tasks.values():
            task.cancel()
        assert (await queue.ended(job))[-1].state == "succeeded"
