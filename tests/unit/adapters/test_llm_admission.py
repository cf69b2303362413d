"""Who gets a slot, who waits and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest

from service.errors import Overloaded
from service.llm.admission import JOBS_EVERY, AdmissionQueue, Permit, QueuedRequest


def played(scenario: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario(), 60))


def now() -> float:
    return asyncio.get_running_loop().time()


def queued(
    left_s: float = 60.0, *, live: bool = True, deadline: bool = False, calls: int = 1
) -> QueuedRequest:
    return QueuedRequest(now() + left_s, deadline, live, calls)


async def waiter(line: AdmissionQueue, one: QueuedRequest) -> asyncio.Task[Permit]:
    """Put a call in line."""
    task = asyncio.create_task(line.permit(one))
    await asyncio.sleep(0)
    return task


async def learnt(line: AdmissionQueue, took_s: float, times: int = 4) -> None:
    """Let the line see calls that take so long."""
    for _ in range(times):
        slot = await line.permit(queued())
        slot.begun -= took_s
        slot.release(answered=True)


def test_slots_are_given_in_order_and_come_back() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(2, 9)
        held = [await line.permit(queued()) for _ in range(2)]
        waiting = [await waiter(line, queued()) for _ in range(3)]
        held[0].release(answered=True)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, False, False]
        for task in waiting:
            (await task).release(answered=True)
        held[1].release(answered=True)
        assert line.free == 2

    played(scenario)


def test_a_request_past_the_bound_is_refused_at_once_and_told_when_to_come_back() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(2, 1)
        await learnt(line, 4.0)
        with ExitStack() as admitted:
            for _ in range(3):  # nobody of them has come to the line yet
                admitted.enter_context(line.admitted(queued()))
            with pytest.raises(Overloaded) as caught:
                admitted.enter_context(line.admitted(queued()))
        assert caught.value.retry_after_s == pytest.approx(4, abs=0.5)
        with line.admitted(queued()):  # those before it went without a call
            pass

    played(scenario)


def test_a_request_is_admitted_with_all_its_calls() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(2, 1)
        large, slots = queued(calls=5), []
        with line.admitted(large):
            calls = [await waiter(line, large) for _ in range(5)]
            with pytest.raises(Overloaded), line.admitted(queued()):
                pass
            for call in calls:
                slots.append(await call)
                slots[-1].release(answered=True)
        assert len(slots) == 5
        assert line.free == 2

    played(scenario)


def test_jobs_are_never_refused_and_get_their_share_of_a_crowded_line() -> None:
    async def scenario() -> None:
        line, order = AdmissionQueue(1, 40), []
        held = await line.permit(queued())

        async def call(name: str, one: QueuedRequest) -> None:
            slot = await line.permit(one)
            order.append(name)
            slot.release(answered=True)

        live = [asyncio.create_task(call("live", queued())) for _ in range(4 * JOBS_EVERY)]
        await asyncio.sleep(0)
        jobs = []
        for _ in range(50):
            job = queued(live=False)
            with line.admitted(job):
                jobs.append(asyncio.create_task(call("job", job)))
                await asyncio.sleep(0)
        with line.admitted(queued()):  # and they do not fill the line for others
            held.release(answered=True)
            await asyncio.gather(*live, *jobs)
        crowded = order[: 4 * JOBS_EVERY]
        assert crowded.count("job") == 4
        assert order.count("job") == 50

    played(scenario)


def test_a_caller_who_goes_leaves_the_line() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 9)
        held = await line.permit(queued())
        first, second = await waiter(line, queued()), await waiter(line, queued())
        first.cancel()
        await asyncio.sleep(0)
        held.release(answered=True)
        (await second).release(answered=True)
        assert line.free == 1

    played(scenario)


def test_a_slot_that_comes_as_the_caller_goes_is_not_lost() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 9)
        held = await line.permit(queued())
        leaving = await waiter(line, queued())
        held.release(answered=True)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert line.free == 1

    played(scenario)


def test_the_wait_ends_with_the_ticket() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 9)
        held = await line.permit(queued())
        with pytest.raises(TimeoutError):
            await line.permit(queued(0.02))
        held.release(answered=True)
        assert line.free == 1

    played(scenario)


def test_a_deadline_that_the_wait_uses_up_is_refused_at_once() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 9)
        await learnt(line, 4.0)
        with line.admitted(queued(1.0, deadline=True)):  # nobody waits: it is tried
            held = await line.permit(queued())
            with pytest.raises(Overloaded), line.admitted(queued(5.0, deadline=True)):
                pass
        with line.admitted(queued(9.0, deadline=True)), line.admitted(queued(5.0)):
            held.release(answered=True)

    played(scenario)


def test_no_slot_is_spent_on_a_call_that_cannot_end_in_time_while_others_wait() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 9)
        await learnt(line, 4.0)
        held = await line.permit(queued())
        late, in_time = await waiter(line, queued(1.0, deadline=True)), await waiter(line, queued())
        held.release(answered=True)
        with pytest.raises(Overloaded):
            await late
        (await in_time).release(answered=True)

    played(scenario)


def test_a_server_that_has_stopped_answering_makes_the_line_look_long() -> None:
    async def scenario() -> None:
        line = AdmissionQueue(1, 1)
        await learnt(line, 1.0)
        held = await line.permit(queued())
        held.begun -= 31.0
        await waiter(line, queued())
        with pytest.raises(Overloaded) as caught, line.admitted(queued()):
            pass
        assert caught.value.retry_after_s == pytest.approx(31, abs=1)

    played(scenario)


def test_the_refused_are_not_all_told_to_come_back_at_once() -> None:
    async def scenario() -> None:
        line, told = AdmissionQueue(1, 1), []
        await learnt(line, 2.0)
        await line.permit(queued())
        await waiter(line, queued())
        for _ in range(21):
            with pytest.raises(Overloaded) as caught, line.admitted(queued()):
                pass
            told.append(caught.value.retry_after_s)
        assert told == sorted(told)
        assert told[-1] - told[0] == pytest.approx(20, abs=1)

    played(scenario)
