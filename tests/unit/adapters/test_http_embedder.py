"""An OpenAI-style embedding server: order, batches, retries, errors, and what is learned from it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx
import numpy as np
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderUnavailable
from service.remote import CHECK_KEPT_S

SECRET_TEXT = "a text that no error may show"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.remote.BACKOFF_S", 0.0)


class Server:
    """Answers with (length, 1) per text, last text first; `script` holds answers given before that."""

    def __init__(self, *script: httpx.Response | Exception) -> None:
        self.script = list(script)
        self.model = "served-model"
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if not self.script:
            return httpx.Response(200, json=self.embeddings(json.loads(request.content)["input"]))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def embeddings(self, texts: list[str]) -> dict:
        data = [{"index": i, "embedding": [len(text), 1]} for i, text in enumerate(texts)]
        return {"object": "list", "model": self.model, "data": data[::-1]}

    def inputs(self) -> list[list[str]]:
        return [json.loads(request.content)["input"] for request in self.requests]


def of_one(embedding: str) -> httpx.Response:
    """Return an answer to one text, with this embedding."""
    return httpx.Response(200, text=f'{{"data": [{{"index": 0, "embedding": {embedding}}}]}}')


def with_embedder(
    server: Server, scenario: Callable[[HttpEmbedder], Awaitable[None]], **options: object
) -> None:
    async def main() -> None:
        base_url = str(options.pop("base_url", "http://embed.test"))
        embedder = HttpEmbedder(base_url, "asked-model", transport=httpx.MockTransport(server), **options)
        await embedder.start()
        try:
            await scenario(embedder)
        finally:
            await embedder.stop()

    asyncio.run(main())


@pytest.mark.parametrize("base_url", ["http://embed.test", "http://embed.test/v1", "http://embed.test/v1/"])
def test_what_is_sent(base_url: str) -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        await embedder.embed(["a"])

    with_embedder(server, scenario, base_url=base_url, api_key="secret")
    sent = server.requests[-1]
    assert str(sent.url) == "http://embed.test/v1/embeddings"
    assert sent.headers["authorization"] == "Bearer secret"
    assert json.loads(sent.content) == {
        "model": "asked-model",
        "input": ["a"],
        "encoding_format": "float",
    }


def test_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.embedding.http.MAX_BATCH", 2)
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        assert (await embedder.embed(["a", "bb", "ccc", "dddd", "eeeee"])).vectors.shape == (5, 2)

    with_embedder(server, scenario)
    assert server.inputs()[1:] == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]


def test_identity_is_learned_from_the_server() -> None:
    async def scenario(embedder: HttpEmbedder) -> None:
        known = embedder.identity
        assert (known.name, known.revision, known.dimension) == ("asked-model", "served-model", 2)

    with_embedder(Server(), scenario)


def test_server_that_comes_up_later() -> None:
    server = Server(*[httpx.ConnectError("refused")] * 4)

    async def scenario(embedder: HttpEmbedder) -> None:
        with pytest.raises(EmbedderUnavailable, match="not answered yet"):
            _ = embedder.identity
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.check()
        await asyncio.sleep(CHECK_KEPT_S + 0.1)  # what a check found holds for that long
        await embedder.check()
        assert embedder.identity.dimension == 2

    with_embedder(server, scenario)


def test_change_of_model_is_followed_and_old_vectors_are_forgotten() -> None:
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


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.Response(429, headers={"retry-after": "0"}),
        httpx.Response(502),
        httpx.Response(503, headers={"retry-after": "soon"}),
    ],
)
def test_passing_trouble_is_tried_again(answer: httpx.Response | Exception) -> None:
    server = Server(answer)

    async def scenario(embedder: HttpEmbedder) -> None:
        assert embedder.identity.dimension == 2

    with_embedder(server, scenario)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "says", "calls"),
    [
        (httpx.ReadTimeout("slow"), "in time", 1),
        (httpx.Response(400, json={"error": {"message": SECRET_TEXT}}), "refused the texts", 1),
        (httpx.Response(401, json={"error": "Unauthorized"}), "refused the service's key", 1),
        (httpx.Response(500, text=SECRET_TEXT), "status 500", 1),
        (httpx.Response(503, text=SECRET_TEXT), "refuses work for now", 4),
        (httpx.ConnectError(SECRET_TEXT), "cannot be reached", 4),
        (httpx.Response(200, text="<html>"), "no embedding", 1),
        (httpx.Response(200, text="[" * 100_000 + "]" * 100_000), "no embedding", 1),
        (httpx.Response(200, json={"data": []}), "no embedding", 1),
        (httpx.Response(200, json={"data": [{"index": 1, "embedding": [1]}]}), "no embedding", 1),
        (of_one("[NaN, 1]"), "not finite", 1),
    ],
)
def test_trouble_is_named_without_the_servers_words(
    answer: httpx.Response | Exception, says: str, calls: int
) -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        server.requests.clear()
        server.script = [answer] * calls
        with pytest.raises(EmbedderUnavailable, match=says) as raised:
            await embedder.embed([SECRET_TEXT])
        assert SECRET_TEXT not in raised.value.detail
        assert len(server.requests) == calls
        assert (await embedder.embed([SECRET_TEXT])).vectors.shape == (1, 2)

    with_embedder(server, scenario)


def test_retry_after_reaches_the_caller() -> None:
    server = Server()

    async def scenario(embedder: HttpEmbedder) -> None:
        server.script = [httpx.Response(429, headers={"retry-after": "30"})] * 4
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.embed(["a"])
        assert raised.value.retry_after_s == 30

    with_embedder(server, scenario)


def test_a_server_that_refuses_the_empty_text_is_not_ready_where_that_is_embedded() -> None:
    class Refuses(Server):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            answer = super().__call__(request)
            return httpx.Response(400) if "" in json.loads(request.content)["input"] else answer

    async def scenario(embedder: HttpEmbedder) -> None:
        with pytest.raises(EmbedderUnavailable, match="refused the texts"):
            await embedder.check()

    with_embedder(Refuses(), scenario, empty_answers="embedded")


def test_stopped_embedder_says_so() -> None:
    async def scenario(embedder: HttpEmbedder) -> None:
        await embedder.stop()
        with pytest.raises(EmbedderUnavailable, match="stopped"):
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
        assert all(isinstance(one, EmbedderUnavailable) for one in met)
        assert (await embedder.embed(["kept", "new"])).made_by.revision == "another"
        assert server.inputs()[-1] == ["kept", "new"]

    with_embedder(server, scenario)
