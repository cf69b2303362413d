"""An OpenAI-compatible embedding server: order, batches, retries, errors and identity."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderRefusal, EmbedderUnavailable
from service.llm.connection import CHECK_KEPT_S
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, drop, hang, raw, status

SECRET_TEXT = "a text that no error may show"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.llm.connection.BACKOFF_S", 0.0)


class Server(OpenAIServer):
    """Answers with (length, 1) per text, in reverse order."""

    def __init__(self, *script: Behaviour) -> None:
        super().__init__(script=script, default=self._embed)
        self.model = "served-model"

    async def _embed(self, exchange: Exchange) -> None:
        data = [{"index": i, "embedding": [len(text), 1]} for i, text in enumerate(exchange.body["input"])]
        await exchange.send(200, {"object": "list", "model": self.model, "data": data[::-1]})

    def inputs(self) -> list[list[str]]:
        return [body["input"] for body in self.bodies]


def of_one(embedding: str) -> Behaviour:
    """Answer with this embedding of one text."""
    return raw(f'{{"data": [{{"index": 0, "embedding": {embedding}}}]}}'.encode())


@asynccontextmanager
async def embedding(server: Server, **options: Any) -> AsyncIterator[HttpEmbedder]:
    async with server:
        embedder = HttpEmbedder(server.url, "asked-model", **options)
        await embedder.start()
        yield embedder
        await embedder.stop()


async def test_server_started_later_is_used() -> None:
    server = Server(*[drop] * 4)

    async with embedding(server) as embedder:
        with pytest.raises(EmbedderUnavailable, match="not answered yet"):
            _ = embedder.identity
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.check()
        await asyncio.sleep(CHECK_KEPT_S + 0.1)  # the result of a check is valid this long
        await embedder.check()
        assert embedder.identity.dimension == 2


async def test_model_change_is_detected_and_old_vectors_are_dropped() -> None:
    server = Server()

    async with embedding(server) as embedder:
        assert (await embedder.embed(["old"])).made_by.revision == "served-model"
        server.model = "another"
        with pytest.raises(EmbedderUnavailable, match="changed its model"):
            await embedder.embed(["old", "new"])
        assert embedder.identity.revision == "another"
        assert (await embedder.embed(["old"])).made_by.revision == "another"
        assert server.inputs()[-1] == ["old"]


@pytest.mark.parametrize(
    ("trouble", "says", "calls"),
    [
        (hang, "in time", 1),
        (status(500, SECRET_TEXT.encode()), "status 500", 1),
        (status(503, SECRET_TEXT.encode()), "refuses work for now", 4),
        (drop, "cannot be reached", 5),  # the first over a reused connection, which may already be closed
        (raw(b"<html>"), "valid embedding", 1),
        (raw(b"[" * 100_000 + b"]" * 100_000), "valid embedding", 1),
        (status(200, {"data": []}), "valid embedding", 1),
        (status(200, {"data": [{"index": 1, "embedding": [1]}]}), "valid embedding", 1),
        (of_one("[NaN, 1]"), "not finite", 1),
    ],
)
async def test_errors_do_not_quote_the_server(
    monkeypatch: pytest.MonkeyPatch, trouble: Behaviour, says: str, calls: int
) -> None:
    server = Server()

    async with embedding(server) as embedder:
        server.requests.clear()
        server.play(*[trouble] * calls)
        with monkeypatch.context() as patched:
            if trouble is hang:
                patched.setattr("service.embedding.http.TIMEOUT_S", 0.2)
            with pytest.raises(EmbedderUnavailable, match=says) as raised:
                await embedder.embed([SECRET_TEXT])
        assert raised.value.retryable
        assert SECRET_TEXT not in raised.value.detail
        assert len(server.requests) == calls
        assert (await embedder.embed([SECRET_TEXT])).vectors.shape == (1, 2)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        *[(code, "refused the texts") for code in (400, 413, 422)],
        *[(code, "refused the service's key") for code in (401, 403)],
        (404, "EIGENCAL_EMBEDDER_URL"),
        *[(code, f"status {code}") for code in (402, 405, 410, 414, 451)],
    ],
)
async def test_refusal_is_not_retried(code: int, says: str) -> None:
    server = Server()

    async with embedding(server) as embedder:
        server.requests.clear()
        server.play(status(code, {"error": {"message": f"too long: {SECRET_TEXT}"}}))
        with pytest.raises(EmbedderRefusal, match=says) as raised:
            await embedder.embed([SECRET_TEXT])
        assert not raised.value.retryable
        assert SECRET_TEXT not in raised.value.detail
        assert raised.value.full_detail.endswith(f"It said: too long: {SECRET_TEXT}")
        assert len(server.requests) == 1


async def test_retry_after_is_forwarded_to_the_caller() -> None:
    server = Server()

    async with embedding(server) as embedder:
        server.play(*[status(429, {}, {"retry-after": "30"})] * 4)
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.embed(["a"])
        assert raised.value.retry_after_s == 30


async def test_stopped_embedder_makes_no_calls() -> None:
    async with embedding(Server()) as embedder:
        await embedder.stop()
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.embed(["a"])


async def test_vectors_of_two_models_are_never_mixed() -> None:
    server = Server()

    async with embedding(server) as embedder:
        ask = embedder._ask

        async def slowly(texts: list[str]) -> np.ndarray:
            await asyncio.sleep(0)
            return await ask(texts)

        embedder._ask = slowly
        await embedder.embed(["kept"])
        server.model = "another"
        calls = [embedder.embed(["new"]), embedder.embed(["kept", "other"])]
        met = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(item, EmbedderUnavailable) for item in met)
        assert (await embedder.embed(["kept", "new"])).made_by.revision == "another"
        assert server.inputs()[-1] == ["kept", "new"]
