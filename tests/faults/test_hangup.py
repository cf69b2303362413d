"""A disconnect frees the LLM, and a stop that cannot wait for an answer reports it."""

import asyncio

import httpx2 as httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import fake_app, posted, served
from tests.support.openai_server import MODEL, OpenAIServer, hang
from tests.support.sqlite_store import SqliteStore


@pytest.mark.parametrize(
    ("path", "body"),
    [("/score", {"prompt": "p"}), ("/score/batch", {"items": [{"prompt": "p"}, {"prompt": "q"}]})],
)
async def test_disconnect_cancels_the_generation(path: str, body: dict) -> None:
    llm = FakeLLM(gate=asyncio.Event())
    async with served(fake_app(llm)) as port, asyncio.timeout(60):
        _, writer = await posted(port, path, body)
        while not llm.active:
            await asyncio.sleep(0.01)
        writer.close()
        while llm.active:
            await asyncio.sleep(0.01)
    assert llm.cancelled >= 1


async def test_disconnect_within_a_body_is_not_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="service")
    async with served(fake_app()) as port, asyncio.timeout(60):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 9\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        while "disconnected while sending" not in caplog.text:
            await asyncio.sleep(0.01)
    assert "unexpected error" not in caplog.text


async def test_requests_cut_by_a_stop_get_an_error() -> None:
    async with OpenAIServer(default=hang) as server:
        settings = Settings(llm_url=server.url, llm_model=MODEL)
        app = create_app(settings, embedder=FakeEmbedder(), store=SqliteStore())
        async with served(app, timeout_graceful_shutdown=1) as port:
            http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
            body = {"messages": [{"role": "user", "content": "?"}]}
            chat = asyncio.create_task(http.post("/v1/chat/completions", json=body))
            score = asyncio.create_task(http.post("/score", json={"prompt": "?"}))
            async with asyncio.timeout(60):
                while len(server.requests) < 2:
                    await asyncio.sleep(0.01)
        response, problem = await chat, await score
        await http.aclose()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    assert (problem.status_code, problem.json()["code"]) == (503, "overloaded")
