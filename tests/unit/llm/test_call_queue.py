"""Calls to an LLM server: granted, waiting and refused."""

import asyncio
from contextlib import AsyncExitStack, ExitStack

import pytest

from service.errors import DeadlineExceeded, Overloaded
from service.llm import queue as call_queue
from service.llm.prompt import Priority
from service.llm.queue import CallQueue
from service.sharing import OWNER

pytestmark = pytest.mark.usefixtures("bounded")


class Call:
    """A call. Its `task` waits for a permit, and the call keeps the permit until `end`."""

    def __init__(self, queue: CallQueue, priority: Priority = Priority.LIVE, left_s: float = 60.0) -> None:
        self._holding = AsyncExitStack()
        ends = asyncio.get_running_loop().time() + left_s
        self.task = asyncio.create_task(self._holding.enter_async_context(queue.permit(priority, ends)))

    async def end(self) -> None:
        await self.task
        await self._holding.aclose()


async def waiting(queue: CallQueue, priority: Priority = Priority.LIVE, left_s: float = 60.0) -> Call:
    call = Call(queue, priority, left_s)
    await asyncio.sleep(0)
    return call


async def test_permits_are_granted_in_order_and_returned() -> None:
    queue = CallQueue(2, 9)
    calls = [await waiting(queue) for _ in range(5)]
    assert [call.task.done() for call in calls] == [True, True, False, False, False]
    assert (queue.num_running, queue.num_waiting) == (2, 3)
    await calls[0].end()
    await asyncio.sleep(0)
    assert [call.task.done() for call in calls[2:]] == [True, False, False]
    for call in calls[1:]:
        await call.end()
    assert (queue.free, queue.num_running, queue.num_waiting) == (2, 0, 0)


async def test_permit_can_be_returned_early() -> None:
    queue = CallQueue(1, 9)
    async with queue.permit(Priority.LIVE, asyncio.get_running_loop().time() + 60) as permit:
        permit.close()
        assert queue.free == 1
    assert queue.free == 1


async def test_wait_ends_with_the_request() -> None:
    queue = CallQueue(1, 9)
    held = await waiting(queue)
    late = await waiting(queue, left_s=0.02)
    with pytest.raises(DeadlineExceeded):
        await late.task
    await held.end()
    assert (queue.free, queue.num_waiting) == (1, 0)


async def test_cancelled_caller_leaves_the_queue_without_losing_a_permit() -> None:
    queue = CallQueue(1, 9)
    held = await waiting(queue)
    first, second, third = [await waiting(queue) for _ in range(3)]
    first.task.cancel()
    await asyncio.sleep(0)
    await held.end()
    second.task.cancel()  # while its permit arrives
    await asyncio.wait({second.task})
    await third.end()
    assert queue.free == 1


async def test_request_over_the_limit_is_refused_and_an_admitted_one_gets_all_calls() -> None:
    queue = CallQueue(2, 1)
    with queue.admitted(Priority.LIVE, 5):
        calls = [await waiting(queue) for _ in range(5)]
        with pytest.raises(Overloaded), queue.admitted(Priority.LIVE):
            pass
        for call in calls:
            await call.end()
    with queue.admitted(Priority.LIVE), queue.admitted(Priority.LIVE), queue.admitted(Priority.LIVE):
        with pytest.raises(Overloaded), queue.admitted(Priority.LIVE):
            pass
    assert queue.free == 2


async def test_a_busy_key_leaves_room_for_another() -> None:
    queue, requests = CallQueue(1, 16), ExitStack()
    with requests:
        for name, most in (("busy", 13), ("another", 3)):
            token = OWNER.set(name)
            for _ in range(most):
                requests.enter_context(queue.admitted(Priority.LIVE))
            with pytest.raises(Overloaded):
                requests.enter_context(queue.admitted(Priority.LIVE))
            OWNER.reset(token)
    with queue.admitted(Priority.LIVE):
        pass


async def test_jobs_are_never_refused_and_let_live_calls_pass_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, order = CallQueue(1, 1), list[str]()
    held = await waiting(queue)

    async def call(name: str, priority: Priority) -> None:
        ends = asyncio.get_running_loop().time() + 60
        with queue.admitted(priority):
            async with queue.permit(priority, ends):
                order.append(name)

    jobs = [asyncio.create_task(call("job", Priority.JOB)) for _ in range(3)]
    await asyncio.sleep(0)
    live = asyncio.create_task(call("live", Priority.LIVE))
    await asyncio.sleep(0)
    await held.end()
    await asyncio.gather(live, *jobs)
    assert order == ["live", "job", "job", "job"]

    monkeypatch.setitem(call_queue.LATE_S, Priority.JOB, 0.0)  # the job has waited as long as it may
    held, order[:] = await waiting(queue), []
    old = asyncio.create_task(call("job", Priority.JOB))
    await asyncio.sleep(0.01)
    live = asyncio.create_task(call("live", Priority.LIVE))
    await asyncio.sleep(0)
    await held.end()
    await asyncio.gather(old, live)
    assert order == ["job", "live"]


async def test_samples_for_a_chat_yield_to_answers() -> None:
    queue = CallQueue(1, 9)
    held = await waiting(queue)
    beside = await waiting(queue, Priority.BESIDE)
    job = await waiting(queue, Priority.JOB)
    live = await waiting(queue)
    with pytest.raises(Overloaded):
        await beside.task
    with pytest.raises(Overloaded), queue.admitted(Priority.BESIDE):
        pass
    with pytest.raises(Overloaded):
        await (await waiting(queue, Priority.BESIDE)).task
    await held.end()
    await live.task
    beside = await waiting(queue, Priority.BESIDE)  # it may wait, since no live call does
    await live.end()
    await beside.end()
    await job.end()
    assert queue.free == 1


async def test_a_job_runs_before_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(call_queue.LATE_S, Priority.LIVE, 1_000.0)
    monkeypatch.setitem(call_queue.LATE_S, Priority.JOB, 10_000.0)
    queue = CallQueue(1, 9)
    running, live = await waiting(queue), await waiting(queue, left_s=100_000.0)
    job = await waiting(queue, Priority.JOB, left_s=60.0)
    await running.end()
    await job.end()
    await live.end()


async def test_keys_take_turns_and_the_calls_of_a_key_keep_their_order() -> None:
    queue, granted = CallQueue(1, 99), list[str]()
    running = await waiting(queue)
    calls = dict[str, Call]()
    for key, number in (("a", 4), ("b", 2), ("a", 2)):
        OWNER.set(key)
        for _ in range(number):
            name = f"{key}{len(calls)}"
            calls[name] = await waiting(queue)
            calls[name].task.add_done_callback(lambda _, name=name: granted.append(name))
    await running.end()
    for number in range(len(calls)):
        while len(granted) == number:
            await asyncio.sleep(0)
        await calls[granted[number]].end()
    assert granted == ["a0", "b4", "a1", "b5", "a2", "a3", "a6", "a7"]
