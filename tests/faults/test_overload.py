"""Overload with deadlines and disconnects leaves the service intact."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from service.errors import DeadlineExceeded, EigencalError, Overloaded
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Sampling, Template
from service.llm.queue import CallQueue
from tests.support.live import fake_app, on_socket, posted
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, after, answers, hang

SLOTS = 8
ANSWER_S = 0.2
PATIENCE_S = 0.3
ROUND_S = 1.0
FACTORS = (1.25, 6)


@dataclass
class Moody:
    """An LLM that answers after some time, or never."""

    then: Behaviour = field(default_factory=lambda: after(ANSWER_S, answers()))

    async def __call__(self, exchange: Exchange) -> None:
        await self.then(exchange)


def together(number: int) -> Behaviour:
    """Answer once `number` callers are waiting at the same time."""
    all_there = asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if exchange.server.active >= number:
            all_there.set()
        await all_there.wait()
        await answers()(exchange)

    return behave


def ask() -> GenerationRequest:
    return GenerationRequest(2, Sampling(), Template().prompt("p"))


async def hung_up(llm: LLM) -> None:
    """Send a request and disconnect, twice in a row: the second hits the closing connection."""
    call = asyncio.create_task(llm.generate(ask()))
    await asyncio.wait({call}, timeout=PATIENCE_S)
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def crowd(callers: int, once: Callable[[], Awaitable[None]]) -> None:
    """Run concurrent callers that send one request after the other, for one round."""
    end = asyncio.get_running_loop().time() + ROUND_S

    async def caller() -> None:
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.wait_for(once(), 60)
            except EigencalError as error:
                await asyncio.sleep(0.05 if isinstance(error, Overloaded) else 0)

    await asyncio.gather(*(caller() for _ in range(callers)))


async def as_good_as_new(llm: LLM, server: OpenAIServer, moody: Moody) -> None:
    """Check that one call per slot can run at the same time, and that no extra connection is left."""
    while server.active:  # abandoned calls, with closing connections
        await asyncio.sleep(0.01)
    server.most_active, as_before = 0, moody.then
    moody.then = together(SLOTS)
    drawn = await asyncio.gather(*(llm.generate(ask()) for _ in range(SLOTS)))
    assert [len(row.draws) for row in drawn] == [2] * SLOTS
    moody.then = as_before
    assert server.most_active == SLOTS
    assert len(server._connections) <= SLOTS


def test_overload_wears_nothing_out() -> None:
    async def main() -> None:
        moody = Moody()
        async with OpenAIServer(default=moody) as server:
            llm = LLM(server.url, model=MODEL, queue=CallQueue(SLOTS, SLOTS))
            for factor in FACTORS:
                await crowd(int(factor * SLOTS), lambda: hung_up(llm))
                await asyncio.wait_for(as_good_as_new(llm, server, moody), 60)
            moody.then = hang
            await crowd(4 * SLOTS, lambda: hung_up(llm))
            moody.then = answers()
            await asyncio.wait_for(llm.check(), 60)
            await asyncio.wait_for(as_good_as_new(llm, server, moody), 60)
            await llm.stop()

    asyncio.run(main())


def test_overload_leaks_nothing_through_the_service() -> None:
    """After deadlines and disconnects over real sockets, the service scores and is ready."""

    async def main() -> None:
        moody = Moody()
        async with OpenAIServer(default=moody) as server:
            llm = LLM(server.url, model=MODEL, queue=CallQueue(SLOTS, SLOTS))
            async with on_socket(fake_app(llm)) as http:
                port = http.base_url.port
                for factor in FACTORS:
                    await crowd(int(factor * SLOTS), lambda: with_deadline(port))
                    await crowd(int(factor * SLOTS), lambda: gone(port))
                moody.then = hang
                await crowd(4 * SLOTS, lambda: with_deadline(port))
                assert (await http.get("/readyz")).status_code == 200
                moody.then = after(ANSWER_S, answers())
                while server.active:
                    await asyncio.sleep(0.01)
                calls = (http.post("/score", json={"prompt": "p"}) for _ in range(SLOTS))
                assert [score.status_code for score in await asyncio.gather(*calls)] == [200] * SLOTS

    asyncio.run(main())


CLOSE = "Connection: close\r\n"


async def with_deadline(port: int) -> None:
    reader, writer = await posted(port, "/score", {"prompt": "p", "deadline_ms": 1000 * PATIENCE_S}, CLOSE)
    assert (await reader.readline()).split()[1] in (b"200", b"503", b"504")
    writer.close()


async def gone(port: int) -> None:
    reader, writer = await posted(port, "/score", {"prompt": "p"}, CLOSE)
    await asyncio.wait({asyncio.ensure_future(reader.read())}, timeout=PATIENCE_S)
    writer.close()


def test_all_requests_to_a_hung_llm_end_after_one_timeout() -> None:
    async def main() -> None:
        async with OpenAIServer(default=hang) as server:
            llm = LLM(server.url, model=MODEL, queue=CallQueue(2, 98), timeout_s=2)
            calls = (llm.generate(ask()) for _ in range(100))
            async with asyncio.timeout(60):  # fifty waves one after the other take 100 s
                ended = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(item, DeadlineExceeded) for item in ended)
            await llm.stop()

    asyncio.run(main())


def test_server_that_sends_slowly_does_not_hold_a_slot_past_the_timeout() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.start(200, {"content-type": "application/json", "connection": "close"})
        while True:
            exchange.writer.write(b"\n")
            await exchange.writer.drain()
            await asyncio.sleep(0.05)

    async def main() -> None:
        async with OpenAIServer([drip]) as server:
            llm = LLM(server.url, model=MODEL, queue=CallQueue(1, 16), timeout_s=2)
            with pytest.raises(DeadlineExceeded):
                await asyncio.wait_for(llm.generate(ask()), 60)
            assert len((await llm.generate(ask())).draws) == 2
            await llm.stop()

    asyncio.run(main())
