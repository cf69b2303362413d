"""LLM permits: granted, queued and refused calls."""

import asyncio
import time

import pytest

from service.errors import DeadlineExceeded, Overloaded
from service.llm.admission import JOBS_EVERY, AdmissionQueue, Permit
from service.llm.port import Priority

pytestmark = pytest.mark.usefixtures("bounded")


def ends(left_s: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + left_s


async def taken(queue: AdmissionQueue) -> Permit:
    return await queue.permit(Priority.LIVE, ends())


async def waiter(
    queue: AdmissionQueue, priority: Priority = Priority.LIVE, left_s: float = 60.0
) -> asyncio.Task[Permit]:
    """Queue a call."""
    task = asyncio.create_task(queue.permit(priority, ends(left_s)))
    await asyncio.sleep(0)
    return task


async def test_permits_are_granted_in_order_and_returned() -> None:
    queue = AdmissionQueue(2, 9)
    held = [await taken(queue) for _ in range(2)]
    waiting = [await waiter(queue) for _ in range(3)]
    held[0].release()
    held[0].release()
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False]
    for task in waiting:
        (await task).release()
    assert (queue.free, queue.num_running, queue.num_waiting) == (1, 1, 0)
    held[1].release()
    assert (queue.free, queue.num_running) == (2, 0)


async def test_permit_that_is_too_late_for_an_answer_is_passed_on() -> None:
    queue = AdmissionQueue(1, 9)
    queue.took_s.extend([1.0] * 10)
    held = await taken(queue)
    late, soon = await waiter(queue, left_s=0.9), await waiter(queue)
    held.release()
    with pytest.raises(Overloaded, match="deadline"):
        await late
    (await soon).release()
    assert queue.free == 1


async def test_permit_after_the_deadline_is_an_error_and_passed_on() -> None:
    queue = AdmissionQueue(1, 9)
    held = await taken(queue)
    late = await waiter(queue, left_s=0.02)
    # A busy loop: the permit arrives before the end is noticed.
    time.sleep(0.05)  # noqa: ASYNC251
    held.release()
    with pytest.raises(DeadlineExceeded):
        await late
    assert queue.free == 1


async def test_only_live_samples_are_refused_by_expected_duration() -> None:
    queue = AdmissionQueue(1, 9)
    queue.took_s.extend([100.0] * 10)
    held = await taken(queue)
    job = await waiter(queue, Priority.JOB, left_s=5.0)

    async def chat() -> None:
        async with queue.one_call(5.0):  # deadline for its start, not for its end
            pass

    chats = [asyncio.create_task(chat()) for _ in range(3)]
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(*chats)
    (await job).release()
    assert queue.free == 1


async def test_request_over_the_limit_is_refused_and_an_admitted_one_gets_all_calls() -> None:
    queue = AdmissionQueue(2, 1)
    with queue.admitted(Priority.LIVE, 5):
        calls = [await waiter(queue) for _ in range(5)]
        with pytest.raises(Overloaded), queue.admitted(Priority.LIVE):
            pass
        for call in calls:
            (await call).release()
    with queue.admitted(Priority.LIVE), queue.admitted(Priority.LIVE), queue.admitted(Priority.LIVE):
        with pytest.raises(Overloaded), queue.admitted(Priority.LIVE):
            pass
    assert queue.free == 2


async def test_jobs_are_never_refused_and_get_their_share() -> None:
    queue, order = AdmissionQueue(1, 4), []
    held = await taken(queue)

    async def call(priority: Priority) -> None:
        permit = await queue.permit(priority, ends())
        order.append(priority)
        permit.release()

    live = [asyncio.create_task(call(Priority.LIVE)) for _ in range(4 * JOBS_EVERY)]
    with queue.admitted(Priority.JOB, 50), queue.admitted(Priority.LIVE):  # and use no slots of others
        jobs = [asyncio.create_task(call(Priority.JOB)) for _ in range(50)]
        await asyncio.sleep(0)
        held.release()
        await asyncio.gather(*live, *jobs)
    assert order[: 4 * JOBS_EVERY].count(Priority.JOB) == 4
    assert order.count(Priority.JOB) == 50


async def test_cancelled_caller_leaves_the_queue_without_losing_a_permit() -> None:
    queue = AdmissionQueue(1, 9)
    held = await taken(queue)
    first, second, third = [await waiter(queue) for _ in range(3)]
    first.cancel()
    await asyncio.sleep(0)
    held.release()
    second.cancel()  # while its permit arrives
    await asyncio.wait({second})
    (await third).release()
    assert queue.free == 1


async def test_wait_ends_with_the_request() -> None:
    queue = AdmissionQueue(1, 9)
    held = await taken(queue)
    with pytest.raises(DeadlineExceeded):
        await queue.permit(Priority.LIVE, ends(0.02))
    held.release()
    assert (queue.free, queue.num_waiting) == (1, 0)


async def test_samples_for_a_chat_yield_to_answers() -> None:
    queue = AdmissionQueue(1, 9)
    held = await taken(queue)
    beside = await waiter(queue, Priority.BESIDE)
    job = await waiter(queue, Priority.JOB)
    live = await waiter(queue)
    with pytest.raises(Overloaded):
        await beside
    with pytest.raises(Overloaded), queue.admitted(Priority.BESIDE):
        pass
    with pytest.raises(Overloaded):
        await queue.permit(Priority.BESIDE, ends())
    held.release()
    second = await live
    beside = await waiter(queue, Priority.BESIDE)  # only a job waits
    second.release()
    (await beside).release()
    (await job).release()
    assert queue.free == 1
