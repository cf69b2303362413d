"""Connections that are lent to one call at a time."""

import asyncio

import httpx
import pytest

from service.llm.connections import Connections
from tests.support.openai_server import OpenAIServer


def test_a_second_cancellation_does_not_break_off_the_closing() -> None:
    class Slow(httpx.AsyncClient):
        async def aclose(self) -> None:
            clients.append(self)
            closing.set()
            await go_on.wait()
            await super().aclose()

    async def main() -> None:
        connections = Connections(Slow, kept_s=1.0)

        async def call() -> None:
            async with connections.one():
                await asyncio.sleep(60)

        caller = asyncio.create_task(call())
        await asyncio.sleep(0)
        caller.cancel()
        await closing.wait()
        caller.cancel()
        await asyncio.wait({caller})
        assert not clients[0].is_closed
        go_on.set()
        await connections.close()
        assert clients[0].is_closed

    closing, go_on, clients = asyncio.Event(), asyncio.Event(), list[Slow]()
    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_whole_answer_keeps_its_connection_for_a_while_and_no_other_does() -> None:
    async def main() -> None:
        async with OpenAIServer() as server:
            lent = Connections(httpx.AsyncClient, kept_s=1.0)

            async def get(then: Exception | None = None) -> None:
                async with lent.one() as http:
                    await http.get(f"{server.url}/models")
                    if then:
                        raise then

            await get()
            await get()
            assert (lent.num_lent, lent.num_idle) == (0, 1)
            assert len(server._connections) == 1
            with pytest.raises(KeyError):
                await get(KeyError())
            assert (lent.num_lent, lent.num_idle) == (0, 0)
            await get()
            while server._connections:
                await asyncio.sleep(0.01)
            assert (lent.num_lent, lent.num_idle) == (0, 0)
            await get()
            await lent.close()
            assert (lent.num_lent, lent.num_idle) == (0, 0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_connection_taken_again_does_not_expire_while_it_is_lent() -> None:
    async def main() -> None:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        connections = Connections(httpx.AsyncClient, kept_s=0.02)
        async with connections.one() as first:
            pass
        async with connections.one() as again:
            assert again is first
            await asyncio.sleep(0.06)  # past the time for which it would have been kept
            assert not again.is_closed
        assert (connections.num_lent, connections.num_idle) == (0, 1)
        await connections.close()
        assert failed == []

    asyncio.run(main())
