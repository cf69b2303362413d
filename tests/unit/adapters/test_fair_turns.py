"""Turns at the worker: a small call gets in between, and nobody waits for ever."""

import asyncio
from collections.abc import Awaitable, Callable

from service.embedding.cache import FairTurns, Share


def played(scenario: Callable[[FairTurns], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(FairTurns()), 60))


def test_a_small_call_waits_for_the_piece_at_work_alone() -> None:
    async def scenario(turns: FairTurns) -> None:
        order: list[str] = []

        async def call(name: str, pieces: int, size: float) -> None:
            share = Share()
            for _ in range(pieces):
                async with turns.turn(size, share):
                    order.append(name)
                    await asyncio.sleep(0)

        large = [asyncio.create_task(call(f"large {i}", 5, 1000)) for i in range(10)]
        await asyncio.sleep(0)
        await call("small", 1, 20)
        assert order.index("small") == 1
        await asyncio.gather(*large)
        assert len(order) == 51

    played(scenario)


def test_a_large_call_gets_on_beside_a_stream_of_small_ones() -> None:
    async def scenario(turns: FairTurns) -> None:
        done = asyncio.Event()
        served = 0

        async def small() -> None:
            nonlocal served
            while not done.is_set():
                async with turns.turn(20, Share()):
                    served += 1
                    await asyncio.sleep(0)

        async def large() -> None:
            share = Share()
            for _ in range(3):
                async with turns.turn(1000, share):
                    await asyncio.sleep(0)
            done.set()

        await asyncio.gather(large(), *(small() for _ in range(4)))
        assert 100 < served < 400  # as much work of each kind

    played(scenario)


def test_a_caller_that_leaves_passes_its_turn_on() -> None:
    async def scenario(turns: FairTurns) -> None:
        async def call() -> None:
            async with turns.turn(1, Share()):
                await asyncio.sleep(0)

        async with turns.turn(1, Share()):
            leaves, just_as_it_comes, stays = (asyncio.create_task(call()) for _ in range(3))
            await asyncio.sleep(0)
            leaves.cancel()
            await asyncio.sleep(0)
        just_as_it_comes.cancel()
        await stays
        await call()

    played(scenario)
