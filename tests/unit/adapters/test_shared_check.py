"""A check that many may ask for: one at a time, shared, and nobody's leaving harms another."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.errors import LLMUnavailable
from service.remote import SharedCheck


class Part:
    """Counts how often it is asked and how many ask at once; waits for `gate`, raises `fails`."""

    def __init__(self) -> None:
        self.asked = self.at_once = self.most_at_once = 0
        self.gate = asyncio.Event()
        self.fails: Exception | None = None

    async def __call__(self) -> None:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        if self.fails is not None:
            raise self.fails


def played(scenario: Callable[[Part, SharedCheck], Awaitable[None]], *, kept_s: float = 60.0) -> None:
    async def main() -> None:
        part = Part()
        await asyncio.wait_for(scenario(part, SharedCheck(part, kept_s=kept_s)), 60)

    asyncio.run(main())


def test_callers_share_one_check_and_what_it_found() -> None:
    async def scenario(part: Part, check: SharedCheck) -> None:
        callers = [asyncio.create_task(check()) for _ in range(50)]
        await asyncio.sleep(0)
        part.gate.set()
        await asyncio.gather(*callers)
        await check()
        assert part.asked == 1

    played(scenario)


def test_what_was_found_does_not_hold_for_ever() -> None:
    async def scenario(part: Part, check: SharedCheck) -> None:
        part.gate.set()
        await check()
        await asyncio.sleep(0.02)
        await check()
        assert part.asked == 2

    played(scenario, kept_s=0.01)


def test_callers_that_leave_neither_cancel_the_check_nor_pile_others_up() -> None:
    async def scenario(part: Part, check: SharedCheck) -> None:
        stays = asyncio.create_task(check())
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(check(), 0.001)
        part.gate.set()
        await stays
        assert (part.asked, part.most_at_once) == (1, 1)

    played(scenario)


def test_a_failure_reaches_all_each_with_an_error_of_its_own() -> None:
    async def scenario(part: Part, check: SharedCheck) -> None:
        part.fails = LLMUnavailable("down", retry_after_s=7)
        part.gate.set()
        found = await asyncio.gather(check(), check(), return_exceptions=True)
        assert [(type(one), one.detail, one.retry_after_s) for one in found] == [
            (LLMUnavailable, "down", 7)
        ] * 2
        assert found[0] is not found[1]
        assert part.asked == 1

    played(scenario)


def test_an_unforeseen_error_is_raised_and_not_the_end() -> None:
    async def scenario(part: Part, check: SharedCheck) -> None:
        part.gate.set()
        part.fails = KeyError("a bug")
        with pytest.raises(KeyError):
            await check()
        part.fails = None
        await asyncio.sleep(0.02)
        await check()

    played(scenario, kept_s=0.01)
