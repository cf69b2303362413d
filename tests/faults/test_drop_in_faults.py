"""The drop-in with faults: disconnecting callers, dying servers, full or failed parts."""

import asyncio
from typing import Any

import pytest

from tests.support.drop_in import QUESTION, DropIn, before, events_of
from tests.support.fakes import FakeEmbedder
from tests.support.live import posted
from tests.support.openai_server import Exchange, answers, hang, pieces
from tests.support.sqlite_store import SqliteStore

CALLERS = 40
BEGIN = b'data: {"model": "scripted-model", "choices": [{"index": 0, "delta": {"content": "Par"}}]}\n\n'
END = (
    b'data: {"model": "scripted-model", "choices": [{"index": 0, "delta": {"content": "is"}, '
    b'"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


async def begun(made: DropIn, mode: str, *, stream: bool) -> asyncio.StreamWriter:
    """Send a call and leave its response unread."""
    body, headers = QUESTION | {"stream": stream}, f"X-Eigencal: {mode}\r\n"
    return (await posted(made.http.base_url.port, "/v1/chat/completions", body, headers))[1]


async def until(condition: Any) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["off", "async", "on"])
@pytest.mark.parametrize("own", ["hangs in its stream", "has ended"])
async def test_disconnects_leave_no_work_behind(mode: str, own: str) -> None:
    answer = {
        "hangs in its stream": pieces(BEGIN, then=hang),
        "has ended": pieces(BEGIN + END),
    }
    calls = 1 if mode == "off" else 2
    async with before(answer[own], hang, llm_slots=2 * CALLERS, chat_deadline_s=600) as made:
        writers = [await begun(made, mode, stream=True) for _ in range(CALLERS)]
        await until(lambda: len(made.server.requests) == calls * CALLERS)
        for writer in writers:
            writer.close()
        left_alone = mode == "async" and own == "has ended"
        if left_alone:  # these answers were sent completely, so their scores must follow
            assert made.chat.scores.tasks
            await made.chat.scores.stop()
        await made.at_rest()
        assert made.app.state.scoring.scorer._live.under_way == 0
        assert (await made.http.get("/healthz")).status_code == 200


async def test_answer_is_returned_while_the_embedder_is_full() -> None:
    embedder = FakeEmbedder(16, gate=asyncio.Event())
    options = {"embedder": embedder, "llm_slots": 100, "chat_deadline_s": 0.2}
    async with before(answers("Paris"), **options) as made:
        replies = await asyncio.gather(*(made.ask() for _ in range(50)))
        assert {reply.status_code for reply in replies} == {200}
        assert {reply.json()["uncertainty"]["status"] for reply in replies} == {"pending"}


async def test_answer_and_score_are_returned_while_the_store_is_down() -> None:
    store = SqliteStore()
    store.kept.available = False
    async with before(answers("Paris"), store=store) as made:
        response = await made.ask()
        uncertainty = response.json()["uncertainty"]
        assert (await made.http.get(f"/scores/{uncertainty['id']}")).json() == uncertainty
    assert (response.status_code, uncertainty["status"]) == (200, "scored")


async def test_server_death_is_reported_on_all_open_streams() -> None:
    die = asyncio.Event()

    async def dies(exchange: Exchange) -> None:
        await die.wait()
        exchange.writer.transport.abort()

    async with before(pieces(BEGIN, then=dies), hang, llm_slots=100) as made:
        calls = [asyncio.create_task(made.ask(stream=True)) for _ in range(50)]
        await until(lambda: len(made.server.requests) == 100)
        die.set()
        for call in calls:
            content = (await call).content
            assert content.startswith(BEGIN)
            assert events_of(content)[-1]["error"]["code"] == "llm_unavailable"
        await made.at_rest()
