"""The sampling stage with a store in a file and a fake LLM."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.calibration.calibration import Fingerprint, service_fingerprint
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.errors import (
    LLMError,
    LLMUnavailable,
    ModelNotFound,
    StoreUnavailable,
)
from service.jobs import calibrator
from service.jobs.calibrator import Drawer, LivePriority
from service.jobs.model import Job, JobError, JobOptions
from service.jobs.runner import JobSteps
from service.jobs.store import RunningJob, SqlJobs
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, LLMIdentity, Sampling
from service.scoring.score import Serving
from service.scoring.scorer import LiveLoad
from tests.support.fakes import FakeEmbedder, FakeLLM, last_user_text
from tests.support.openai_server import Behaviour, OpenAIServer, answers
from tests.support.pipeline import QUICK
from tests.support.sqlite_store import CopiedDatabase

ROWS = 30
SERVING = Serving(5, Sampling(max_tokens=7), Sampling(max_tokens=7))
EMBEDDER = FakeEmbedder(8)
IDENTITY = EMBEDDER.identity


def prompts(count: int = ROWS) -> list[DevRow]:
    return [DevRow(i + 1, None, ("r",), prompt=f"p{i}") for i in range(count)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlJobs]:
    database = CopiedDatabase(tmp_path)
    yield SqlJobs(database, SqlCalibrations(database))
    await database.stop()


async def unfinished(job: RunningJob) -> None:
    """Leave a job running after its draws."""


class Case:
    """A job of which only the sampling stage runs; it stays running unless it fails."""

    def __init__(self, store: SqlJobs, llm: Any, job_id: str, steps: JobSteps, drawer: Drawer) -> None:
        self.store, self.llm, self.job_id, self.steps, self.drawer = store, llm, job_id, steps, drawer

    async def draw(self) -> Job:
        await self.steps.run("draw", self.job_id)
        return await self.job()

    async def job(self) -> Job:
        job = await self.store.get(self.job_id)
        assert job is not None
        return job

    async def error(self) -> tuple[str, str]:
        """Sample; return the error of the failed job."""
        job = await self.draw()
        assert job.error is not None
        return job.error.code, job.error.detail

    async def again(self) -> Job:
        """Sample once more, as in a retry."""
        if (await self.job()).finished_at:
            await self.store.retry(self.job_id)
        return await self.draw()

    async def answers(self) -> list[list[str]]:
        return [[d.text for d in row.draws] for row in await self.store.rows(self.job_id)]

    async def bound(self) -> Fingerprint | None:
        return (await self.store.running(self.job_id)).fingerprint


Make = Callable[..., Any]


@pytest.fixture
def make(store: SqlJobs) -> Make:
    @asynccontextmanager
    async def making(
        llm: Any,
        rows: list[DevRow] | None = None,
        serving: Serving = SERVING,
        *,
        slots: int = 1,
    ) -> AsyncIterator[Case]:
        job, _ = await store.submit(rows or prompts(), JobOptions())
        drawer = Drawer(llm, EMBEDDER, store, serving, patience=QUICK)
        steps = JobSteps(store, drawer, unfinished, slots=slots, wait_s=0.001)
        yield Case(store, llm, job.id, steps, drawer)

    return making


async def test_concurrent_requests_are_limited_to_the_slots(make: Make) -> None:
    most = 0
    llm = FakeLLM(gate=asyncio.Event())

    def seen(request: GenerationRequest) -> None:
        nonlocal most
        most = max(most, llm.active + 1)
        if llm.gate is not None and most == 3:
            asyncio.get_running_loop().call_later(0.05, llm.gate.set)

    llm._on_request = seen
    async with make(llm, slots=3) as case:
        await case.draw()
    assert most == 3


async def test_empty_answers_are_sampled_again_up_to_a_limit(make: Make) -> None:
    llm = FakeLLM(answers={"p1": [""]}, default=["", "Paris"])
    async with make(llm) as case:
        await case.draw()
        assert await case.answers() == [["Paris"] * 4, [], *[["Paris"] * 4] * (ROWS - 2)]
        assert [r.num_samples for r in llm.requests][:5] == [5, 3, 2, 5, 5]
        num_requests = len(llm.requests)
        await case.draw()
        assert len(llm.requests) == num_requests, "a row that is closed is not asked for again"


@asynccontextmanager
async def over_http(*script: Behaviour, default: Behaviour) -> AsyncIterator[LLM]:
    async with OpenAIServer(script, default=default) as server:
        llm = LLM(server.url, model="asked")
        await llm.start()
        yield llm
        await llm.stop()


def test_setups_are_compared_without_fields_known_only_from_answers() -> None:
    def fingerprint(model: str, omitted: tuple[str, ...] = (), shape: str = "s") -> Fingerprint:
        return service_fingerprint(LLMIdentity(model, "chat", shape, omitted), Sampling(), IDENTITY)

    bound, without = fingerprint("m1"), fingerprint("m2", ("top_k",))
    assert bound.differs(without) == ["model", "sampling.top_k"]
    assert without.drawn_as(bound) == bound
    assert bound.drawn_as(without) == without
    assert fingerprint("m1", shape="t").drawn_as(bound).differs(bound) == ["prompt_shape"]


async def test_stored_answers_are_not_sampled_again(make: Make) -> None:
    llm = FakeLLM()
    async with make(llm) as case:
        llm.answers = {"p3": ("x",)}

        def fail(request: GenerationRequest) -> None:
            if len(llm.requests) == 12:
                llm.fail_with.append(ModelNotFound("gone"))

        llm._on_request = fail
        assert (await case.draw()).state == "failed"
        before = await case.answers()
        assert sum(map(len, before)) > 5
        llm.requests.clear()
        llm._on_request = None
        assert (await case.again()).state == "running"
        after = await case.answers()
        assert {len(row) for row in after} == {5}
        assert all(row[: len(old)] == old for old, row in zip(before, after, strict=True))
        complete = {f"p{i}" for i, row in enumerate(before) if len(row) == 5}
        assert complete
        assert not {last_user_text(one) for one in llm.requests} & complete


@pytest.mark.parametrize("passing", [LLMUnavailable("down"), LLMError("no", llm_status=500)])
async def test_transient_errors_are_waited_for(
    make: Make, passing: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, note = list[str](), SqlJobs.note

    async def noted(store: SqlJobs, job_id: str, text: str) -> None:
        await note(store, job_id, text)
        notes.append(text)

    monkeypatch.setattr(SqlJobs, "note", noted)
    async with make(FakeLLM(fail_with=[passing] * 12)) as case:
        job = await case.draw()
        assert {len(row) for row in await case.answers()} == {5}
        assert notes == [f"Waiting to try again: {passing}"] * 12
        assert (job.note, job.done) == ("", ROWS)


async def test_waiting_run_ends_when_its_job_has_failed(make: Make) -> None:
    """The retry has its own workflow; the old one would fit incomplete rows."""
    llm, fatal = FakeLLM(gate=asyncio.Event()), LLMError("no key", llm_status=401)
    async with make(llm) as case:
        waiting = asyncio.create_task(case.steps.run("draw", case.job_id))
        while not llm.requests:
            await asyncio.sleep(0.01)
        await case.store.fail(case.job_id, JobError(code=fatal.code, detail=str(fatal)))
        await case.store.retry(case.job_id)
        llm.gate.set()
        assert not await waiting
        assert ((await case.job()).state, len(llm.requests)) == ("queued", 1)


async def test_changed_model_under_the_same_name_is_detected(make: Make) -> None:
    first = [answers(model="m1")] * 7
    async with over_http(*first, default=answers(model="m2")) as llm, make(llm, slots=4) as case:
        assert "first 'm1' answered, then 'm2'" in (await case.error())[1]
        # No more than the seven by m1 were kept.
        assert sum(bool(row) for row in await case.answers()) <= 7


async def test_temporary_store_failure_loses_no_answer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, calls = SqlJobs.keep_draws, []

    async def stumble(*given: Any, **more: Any) -> None:
        calls.append(given)
        if len(calls) == 5:
            raise StoreUnavailable("down")
        await keep(*given, **more)

    monkeypatch.setattr(SqlJobs, "keep_draws", stumble)
    async with make(FakeLLM()) as case:
        assert (await case.draw()).state == "running"
        assert {len(row) for row in await case.answers()} == {5}
        assert len(case.llm.requests) == ROWS


def busy() -> LiveLoad:
    """Return a load with a score that does not end."""
    load = LiveLoad()
    load.under_way = 1
    return load


@pytest.mark.usefixtures("bounded")
class TestLivePriority:
    async def test_sampling_waits_for_idle_time_or_a_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        load = busy()
        gate = LivePriority(load)
        gate._next = float("inf")

        async def work() -> None:
            await gate.turn(partial(asyncio.sleep, 0.05))

        task = asyncio.create_task(work())
        await asyncio.sleep(0.05)
        assert not task.done()
        load.under_way = 0
        await task
        load.under_way, gate._next = 1, 0.0
        monkeypatch.setattr(calibrator, "MAX_PAUSE_S", 0.01)
        await work()
        await work()  # after the pause

    async def test_all_waiting_rows_continue_when_idle(self) -> None:
        load = busy()
        gate = LivePriority(load)
        gate._next = float("inf")
        together = asyncio.Barrier(5)
        tasks = [asyncio.create_task(gate.turn(together.wait)) for _ in range(5)]
        await asyncio.sleep(0.05)
        load.under_way = 0
        await asyncio.gather(*tasks)

    async def test_one_row_at_a_time_under_load_without_starvation(self) -> None:
        gate = LivePriority(busy())
        inside = most = turns = 0

        async def work() -> None:
            nonlocal inside, most, turns
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.005)
            inside -= 1
            turns += 1

        await asyncio.gather(*(gate.turn(work) for _ in range(5)))
        assert (most, turns) == (1, 5)
