"""Who gets a permit, who waits and who is refused."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest

from service.errors import DeadlineExceeded, Overloaded
from service.llm.admission import JOBS_EVERY, MIN_RETRY_S, AdmissionQueue, Permit, QueuedRequest
from service.llm.port import Priority


def played(scenario: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario(), 60))


def now() -> float:
    return asyncio.get_running_loop().time()


def queued(left_s: float = 60.0, *, priority: Priority = Priority.LIVE, calls: int = 1) -> QueuedRequest:
    return QueuedRequest(now() + left_s, priority, calls)


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


async def waiter(queue: AdmissionQueue, one: QueuedRequest) -> asyncio.Task[Permit]:
    """Queue a call."""
    task = asyncio.create_task(queue.permit(one))
    await asyncio.sleep(0)
    return task


async def learnt(queue: AdmissionQueue, took_s: float, times: int = 4) -> None:
    """Let the queue see calls that take so long."""
    for _ in range(times):
        permit = await queue.permit(queued())
        permit.begun -= took_s
        permit.release(answered=True)


def test_permits_are_given_in_order_and_come_back() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(2, 9)
        held = [await queue.permit(queued()) for _ in range(2)]
        waiting = [await waiter(queue, queued()) for _ in range(3)]
        held[0].release(answered=True)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, False, False]
        for task in waiting:
            (await task).release(answered=True)
        assert (queue.free, queue.num_running) == (1, 1)
        held[1].release(answered=True)
        assert (queue.free, queue.num_running) == (2, 0)

    played(scenario)


def test_a_request_past_the_bound_is_refused_at_once_and_told_when_to_come_back() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(2, 1)
        await learnt(queue, 4.0)
        with ExitStack() as admitted:
            for _ in range(3):  # nobody of them has been queued yet
                admitted.enter_context(queue.admitted(queued()))
            with pytest.raises(Overloaded) as caught:
                admitted.enter_context(queue.admitted(queued()))
        assert caught.value.retry_after_s == pytest.approx(4, abs=0.5)
        with queue.admitted(queued()):  # those before it went without a call
            pass

    played(scenario)


def test_a_request_is_admitted_with_all_its_calls() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(2, 1)
        large, permits = queued(calls=5), []
        with queue.admitted(large):
            calls = [await waiter(queue, large) for _ in range(5)]
            with pytest.raises(Overloaded), queue.admitted(queued()):
                pass
            for call in calls:
                permits.append(await call)
                permits[-1].release(answered=True)
        assert len(permits) == 5
        assert queue.free == 2

    played(scenario)


def test_jobs_are_never_refused_and_get_their_share_of_a_crowded_queue() -> None:
    async def scenario() -> None:
        queue, order = AdmissionQueue(1, 40), []
        held = await queue.permit(queued())

        async def call(name: str, one: QueuedRequest) -> None:
            permit = await queue.permit(one)
            order.append(name)
            permit.release(answered=True)

        live = [asyncio.create_task(call("live", queued())) for _ in range(4 * JOBS_EVERY)]
        await asyncio.sleep(0)
        jobs = []
        for _ in range(50):
            job = queued(priority=Priority.JOB)
            with queue.admitted(job):
                jobs.append(asyncio.create_task(call("job", job)))
                await asyncio.sleep(0)
        with queue.admitted(queued()):  # and they do not fill the queue for others
            held.release(answered=True)
            await asyncio.gather(*live, *jobs)
        crowded = order[: 4 * JOBS_EVERY]
        assert crowded.count("job") == 4
        assert order.count("job") == 50

    played(scenario)


def test_a_caller_who_goes_leaves_the_queue() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        held = await queue.permit(queued())
        first, second = await waiter(queue, queued()), await waiter(queue, queued())
        first.cancel()
        await asyncio.sleep(0)
        held.release(answered=True)
        (await second).release(answered=True)
        assert queue.free == 1

    played(scenario)


def test_a_permit_that_comes_as_the_caller_goes_is_not_lost() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        held = await queue.permit(queued())
        leaving = await waiter(queue, queued())
        held.release(answered=True)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert queue.free == 1

    played(scenario)


def test_the_wait_ends_with_the_request() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        held = await queue.permit(queued())
        with pytest.raises(DeadlineExceeded):
            await queue.permit(queued(0.02))
        held.release(answered=True)
        assert queue.free == 1

    played(scenario)


def test_a_wait_past_its_end_is_told_so_although_a_permit_falls_free_first() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        held = await queue.permit(queued())
        late, in_time = await waiter(queue, queued(0.02)), await waiter(queue, queued())
        stand_still(0.05)  # timers are due that the loop has not looked at
        held.release(answered=True)
        with pytest.raises(DeadlineExceeded):
            await late
        (await in_time).release(answered=True)
        assert queue.free == 1

    played(scenario)


def test_a_deadline_that_the_wait_uses_up_is_refused_at_once() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        await learnt(queue, 4.0)
        with queue.admitted(queued(1.0)):  # nobody waits: it is tried
            held = await queue.permit(queued())
            with pytest.raises(Overloaded), queue.admitted(queued(5.0)):
                pass
        with queue.admitted(queued(9.0)):
            held.release(answered=True)

    played(scenario)


def test_a_permit_is_not_spent_on_an_answer_that_nobody_will_read() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        await learnt(queue, 4.0)
        held = await queue.permit(queued())
        late, in_time = await waiter(queue, queued(1.0)), await waiter(queue, queued())
        held.release(answered=True)
        with pytest.raises(Overloaded):
            await late
        (await in_time).release(answered=True)

    played(scenario)


def test_a_permit_is_spent_on_an_answer_that_the_quicker_ones_show_to_be_in_time() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        await learnt(queue, 1.0)
        await learnt(queue, 9.0)
        held = await queue.permit(queued())
        waiting = await waiter(queue, queued(4.0))
        held.release(answered=False)
        (await waiting).release(answered=True)

    played(scenario)


def test_before_any_call_is_over_callers_are_told_to_come_back_soon() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 2)
        await queue.permit(queued())
        waiting = [await waiter(queue, queued()) for _ in range(20)]
        assert queue.retry_after_s() == MIN_RETRY_S
        for task in waiting:
            task.cancel()

    played(scenario)


def test_refused_callers_are_told_different_times_to_come_back() -> None:
    async def scenario() -> None:
        queue, waits_s = AdmissionQueue(1, 1), []
        await learnt(queue, 2.0)
        await queue.permit(queued())
        await waiter(queue, queued())
        for _ in range(21):
            with pytest.raises(Overloaded) as caught, queue.admitted(queued()):
                pass
            waits_s.append(caught.value.retry_after_s)
        assert waits_s == sorted(waits_s)
        assert waits_s[-1] - waits_s[0] == pytest.approx(20, abs=1)

    played(scenario)


def test_draws_beside_an_answer_wait_only_as_long_as_no_answer_does() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        held = await queue.permit(queued())
        beside = await waiter(queue, queued(priority=Priority.BESIDE))
        job = await waiter(queue, queued(priority=Priority.JOB))
        live = await waiter(queue, queued())
        with pytest.raises(Overloaded):
            await beside
        with pytest.raises(Overloaded), queue.admitted(queued(priority=Priority.BESIDE)):
            pass
        held.release(answered=True)
        second = await live
        with queue.admitted(late := queued(priority=Priority.BESIDE)):  # nobody but a job waits
            beside = await waiter(queue, late)
        second.release(answered=True)
        (await beside).release(answered=True)
        (await job).release(answered=True)
        assert queue.free == 1

    played(scenario)


def test_draws_beside_answers_are_bounded_like_answers() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 2)
        await queue.permit(queued())
        waiting = [await waiter(queue, queued(priority=Priority.BESIDE)) for _ in range(2)]
        with pytest.raises(Overloaded), queue.admitted(queued(priority=Priority.BESIDE)):
            pass
        with queue.admitted(queued()):  # an answer has room all the same
            assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()

    played(scenario)


def test_one_call_gives_its_permit_back_once_whenever_it_is_over() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 0)
        async with queue.one_call(60) as permit:
            with pytest.raises(Overloaded):
                async with queue.one_call(60):
                    pass
            permit.release(answered=True)
            assert queue.free == 1
        assert queue.free == 1
        with pytest.raises(ZeroDivisionError):
            async with queue.one_call(60):
                raise ZeroDivisionError
        assert queue.free == 1

    played(scenario)


def test_a_call_that_only_waits_is_not_refused_for_how_long_it_takes() -> None:
    """A chat may take longer than anybody waits for a permit, and its times are no measure of a draw's."""

    async def scenario() -> None:
        queue = AdmissionQueue(2, 9)
        for _ in range(4):
            async with queue.one_call(60) as permit:
                permit.begun -= 400
                permit.release(answered=True)
        await learnt(queue, 1.0)
        held = [await queue.permit(queued()) for _ in range(2)]
        with queue.admitted(queued(500.0)):
            waiting = [await waiter(queue, queued(5.0)) for _ in range(2)]
        for permit in held:
            permit.release(answered=False)
        for task in waiting:
            (await task).release(answered=True)
        async with queue.one_call(60), queue.one_call(60):
            with pytest.raises(Overloaded):  # not that long
                async with queue.one_call(0.01):
                    pass

    played(scenario)


def test_only_a_call_that_must_be_over_by_its_end_is_refused_for_how_long_it_takes() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)
        await learnt(queue, 4.0)

        async def call() -> None:
            async with queue.one_call(6):
                pass

        async with queue.one_call(60) as held:
            with pytest.raises(Overloaded), queue.admitted(queued(6.0)):
                pass
            waiting = asyncio.create_task(call())
            await asyncio.sleep(0)
            held.release(answered=False)
            await waiting

    played(scenario)


def test_a_call_that_had_no_good_answer_says_nothing_of_how_long_one_takes() -> None:
    async def scenario() -> None:
        queue = AdmissionQueue(1, 9)

        async def call(took_s: float = 0.0) -> None:
            async with queue.one_call(60) as permit:
                permit.begun -= took_s

        await call(400)
        async with queue.one_call(60) as permit:
            waiting = asyncio.create_task(call())
            await asyncio.sleep(0)
            permit.release(answered=False)
            await waiting  # it was not refused

    played(scenario)
