"""Connections that are lent to one call at a time, and calls that are ended from outside."""

import asyncio
import contextlib

import httpx
import pytest

from service.llm import client as llm_connections
from service.llm.client import Connections, until
from tests.support.openai_server import OpenAIServer


def soon(seconds: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + seconds


def test_what_was_cancelled_is_over_only_when_it_has_closed_however_often_it_is_cancelled() -> None:
    async def main() -> None:
        closed, ends = asyncio.Event(), list[bool]()
        closing = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                closing.set()
                await closed.wait()

        caller = asyncio.create_task(until(soon(), work(), ends.append))
        await asyncio.sleep(0)
        for _ in range(3):
            caller.cancel()
            await asyncio.sleep(0.01)
        assert caller.cancelled()  # the caller waits for nothing
        assert closing.is_set()
        assert ends == []
        closed.set()
        await asyncio.sleep(0.01)
        assert ends == [False]

    asyncio.run(main())


def test_closing_does_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_connections, "CLOSING_S", 0.05)

    async def main() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            await until(soon(0.05), work(), lambda _: ended.set())
        assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), 60)

    asyncio.run(main())


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
