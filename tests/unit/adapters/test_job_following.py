"""Many watchers of a job, one poller: what each sees, and when the asking begins and ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.errors import StoreUnavailable
from service.jobs.durable import JobWatch
from service.jobs.model import Job

pytestmark = pytest.mark.anyio
JOB = Job("job_1", "calibrate", "running", datetime(2026, 1, 1, tzinfo=UTC))
ENDED = replace(JOB, state="succeeded", done=9)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Store:
    """Answers each question once a test has said with what."""

    def __init__(self) -> None:
        self.answers = asyncio.Queue[Job | Exception | None]()
        self.asked: list[str] = []
        self.watch = JobWatch(self.get, poll_s=0)

    async def get(self, job_id: str) -> Job | None:
        self.asked.append(job_id)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def say(self, *answers: Job | Exception | None) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)


async def all_of(states: AsyncIterator[Job]) -> list[Job]:
    return [state async for state in states]


async def settle() -> None:
    """Let every task go on until it waits for something that does not come by itself."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_hundred_watchers_ask_as_one() -> None:
    store = Store()
    watchers = [asyncio.create_task(all_of(store.watch.states("job_1"))) for _ in range(100)]
    await settle()
    assert store.asked == ["job_1"]
    for state in (JOB, JOB, replace(JOB, done=4)):
        store.say(state)
        await settle()
    store.say(ENDED)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*watchers) == [[JOB, replace(JOB, done=4), ENDED]] * 100
    assert store.asked == ["job_1"] * 4


async def test_one_who_comes_later_sees_the_present_at_once() -> None:
    store = Store()
    store.say(JOB)
    async with asyncio.timeout(60):
        first, second = store.watch.states("job_1"), store.watch.states("job_1")
        assert await anext(first) == await anext(second) == JOB
        store.say(ENDED)
        assert await all_of(first) == await all_of(second) == [ENDED]
        store.say(ENDED)  # whoever comes after the end asks for himself
        assert await all_of(store.watch.states("job_1")) == [ENDED]


async def test_the_slow_miss_states_but_never_the_last() -> None:
    store = Store()
    store.say(JOB)
    async with asyncio.timeout(60):
        slow, quick = store.watch.states("job_1"), store.watch.states("job_1")
        assert await anext(slow) == await anext(quick) == JOB
        for done in (1, 2):
            store.say(replace(JOB, done=done))
            assert await anext(quick) == replace(JOB, done=done)
        store.say(ENDED)
        assert await all_of(quick) == [ENDED]
        assert await all_of(slow) == [ENDED]


async def test_the_asking_ends_with_the_last_watcher() -> None:
    store = Store()
    store.say(JOB)
    first, second = store.watch.states("job_1"), store.watch.states("job_1")
    await anext(first)
    await anext(second)
    await first.aclose()
    store.say(replace(JOB, done=1))
    async with asyncio.timeout(60):
        assert await anext(second) == replace(JOB, done=1)
    await settle()
    await second.aclose()
    await settle()
    asked = len(store.asked)
    store.say(*[JOB] * 5)  # the first answers the question that was under way
    await settle()
    assert len(store.asked) == asked
    assert store.answers.qsize() == 4


async def test_an_error_is_told_to_all_and_the_next_one_asks_again() -> None:
    store = Store()
    watchers = [asyncio.create_task(all_of(store.watch.states("job_1"))) for _ in range(3)]
    store.say(StoreUnavailable("The store is away."))
    async with asyncio.timeout(60):
        for watcher in watchers:
            with pytest.raises(StoreUnavailable):
                await watcher
        store.say(ENDED)
        assert await all_of(store.watch.states("job_1")) == [ENDED]


async def test_jobs_are_watched_apart_and_an_unknown_one_not_at_all() -> None:
    store = Store()
    store.say(None, ENDED)
    async with asyncio.timeout(60):
        assert await all_of(store.watch.states("none")) == []
        assert await all_of(store.watch.states("job_1")) == [ENDED]
    assert store.asked == ["none", "job_1"]
