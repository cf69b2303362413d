"""An OpenAI-compatible embedding server: order, batches, retries, errors and identity."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderRefusal, EmbedderUnavailable
from service.remote import CHECK_KEPT_S, TRY_AGAIN
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, drop, hang, raw, status

SECRET_TEXT = "a text that no error may show"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.remote.BACKOFF_S", 0.0)


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


def with_embedder(
    server: Server, scenario: Callable[[HttpEmbedder], Awaitable[None]], *, end: str = "", **options: object
) -> None:
    async def main() -> None:
        async with server:
            embedder = HttpEmbedder(server.url.removesuffix("/v1") + end, "asked-model", **options)
            await embedder.start()
            try:
                await scenario(embedder)
            finally:
                await embedder.stop()

    asyncio.run(main())


@pytest.mark.parametrize("end", ["", "/v1", "/v1/"])
def test_request_body(end: str) -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        await embedder.embed(["a"])

    with_embedder(server, scenario, end=end, api_key="secret")
    sent = server.requests[-1]
    assert (sent.path, sent.headers["authorization"]) == ("/v1/embeddings", "Bearer secret")
    assert sent.body == {"model": "asked-model", "input": ["a"], "encoding_format": "float"}


def test_texts_are_split_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.embedding.http.MAX_BATCH", 2)
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        assert (await embedder.embed(["a", "bb", "ccc", "dddd", "eeeee"])).vectors.shape == (5, 2)

    with_embedder(server, scenario)
    assert server.inputs()[1:] == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]


def test_identity_comes_from_the_server() -> None:
    async def scenario(embedder: HttpEmbedder) -> None:
        identity = embedder.identity
        assert (identity.name, identity.revision, identity.dimension) == ("asked-model", "served-model", 2)

    with_embedder(Server(), scenario)


def test_server_started_later_is_used() -> None:
    server = Server(*[drop] * 4)

    async def scenario(embedder: HttpEmbedder) -> None:
        with pytest.raises(EmbedderUnavailable, match="not answered yet"):
            _ = embedder.identity
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.check()
        await asyncio.sleep(CHECK_KEPT_S + 0.1)  # the result of a check is valid this long
        await embedder.check()
        assert embedder.identity.dimension == 2

    with_embedder(server, scenario)


def test_model_change_is_detected_and_old_vectors_are_dropped() -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        assert (await embedder.embed(["old"])).made_by.revision == "served-model"
        server.model = "another"
        with pytest.raises(EmbedderUnavailable, match="changed its model"):
            await embedder.embed(["old", "new"])
        assert embedder.identity.revision == "another"
        assert (await embedder.embed(["old"])).made_by.revision == "another"
        assert server.inputs()[-1] == ["old"]

    with_embedder(server, scenario)


@pytest.mark.parametrize("trouble", [drop, *(status(code, {}) for code in sorted(TRY_AGAIN))])
def test_transient_errors_are_retried(trouble: Behaviour) -> None:
    server = Server(trouble)

    async def scenario(embedder: HttpEmbedder) -> None:
        assert embedder.identity.dimension == 2

    with_embedder(server, scenario)
    assert len(server.requests) == 2


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
def test_errors_do_not_quote_the_server(
    monkeypatch: pytest.MonkeyPatch, trouble: Behaviour, says: str, calls: int
) -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
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

    with_embedder(server, scenario)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        *[(code, "refused the texts") for code in (400, 413, 422)],
        *[(code, "refused the service's key") for code in (401, 403)],
        (404, "EIGENCAL_EMBEDDER_URL"),
        *[(code, f"status {code}") for code in (402, 405, 410, 414, 451)],
    ],
)
def test_refusal_is_not_retried(code: int, says: str) -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        server.requests.clear()
        server.play(status(code, {"error": {"message": f"too long: {SECRET_TEXT}"}}))
        with pytest.raises(EmbedderRefusal, match=says) as raised:
            await embedder.embed([SECRET_TEXT])
        assert not raised.value.retryable
        assert SECRET_TEXT not in raised.value.detail
        assert raised.value.full_detail.endswith(f"It said: too long: {SECRET_TEXT}")
        assert len(server.requests) == 1

    with_embedder(server, scenario)


def test_retry_after_is_forwarded_to_the_caller() -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        server.play(*[status(429, {}, {"retry-after": "30"})] * 4)
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.embed(["a"])
        assert raised.value.retry_after_s == 30

    with_embedder(server, scenario)


def test_server_that_refuses_empty_text_is_not_ready_if_needed() -> None:
    class Refuses(Server):
        async def _embed(self, exchange: Exchange) -> None:
            refused = "" in exchange.body["input"]
            await (status(400, {})(exchange) if refused else super()._embed(exchange))

    async def scenario(embedder: HttpEmbedder) -> None:
        with pytest.raises(EmbedderUnavailable, match="refused the texts"):
            await embedder.check()

    with_embedder(Refuses(), scenario, empty_answers="embedded")


def test_stopped_embedder_makes_no_calls() -> None:
    async def scenario(embedder: HttpEmbedder) -> None:
        await embedder.stop()
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.embed(["a"])

    with_embedder(Server(), scenario)


def test_vectors_of_two_models_are_never_mixed() -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
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

    with_embedder(server, scenario)
