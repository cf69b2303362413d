"""Slots, queues and threads shared by keys."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from service import sharing
from service.errors import Overloaded
from service.sharing import OWNER, FairSemaphore, Threads, started_pool

pytestmark = pytest.mark.usefixtures("bounded")


@contextmanager
def owner(name: str) -> Iterator[None]:
    token = OWNER.set(name)
    try:
        yield
    finally:
        OWNER.reset(token)


async def enter(semaphore: FairSemaphore, name: str, order: list[str]) -> None:
    with owner(name):
        async with semaphore:
            order.append(name)


async def test_slots_rotate_between_keys_and_return_from_cancelled_callers() -> None:
    semaphore, order = FairSemaphore(1), list[str]()
    await semaphore.acquire()
    waiting = [asyncio.create_task(enter(semaphore, name, order)) for name in "aaab"]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    await asyncio.sleep(0)
    semaphore.release()
    waiting[1].cancel()  # after it got its slot
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["b", "a"] or order == ["a", "b"]
    async with semaphore:
        assert order.count("a") == 1


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads("test", 1, max_waiting=2)
    yield made
    await made.stop()


async def test_a_pool_has_all_its_threads_before_it_has_work() -> None:
    with started_pool("early", 3):
        assert sum(thread.name.startswith("early") for thread in threading.enumerate()) == 3


async def test_unstarted_work_is_dropped_with_its_caller(threads: Threads) -> None:
    gate, done = threading.Event(), list[str]()
    running = asyncio.create_task(threads.run(gate.wait))
    await asyncio.sleep(0)
    left = asyncio.create_task(threads.run(done.append, "left"))
    stays = asyncio.create_task(threads.run(done.append, "stays"))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await threads.run(done.append, "too many")
    left.cancel()
    running.cancel()  # its thread is still busy
    await asyncio.sleep(0)
    assert not stays.done()
    gate.set()
    await stays
    assert done == ["stays"]


async def test_long_work_stops_between_pieces(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "PIECE_S", 0.0)
    begun, gate, made = threading.Event(), threading.Event(), list[int]()

    def items() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            begun.set()
            gate.wait()
            yield number

    work = asyncio.create_task(threads.collect(items()))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    gate.set()
    assert await threads.run(lambda: list(made)) == [0]
    assert await threads.collect(iter(range(5))) == [0, 1, 2, 3, 4]


async def test_error_is_raised_and_frees_the_thread(threads: Threads) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: 1) == 1
