"""POST /score embeds answers as they finish, over real sockets: what is embedded when, and the same score."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import build_llm, create_app
from service.embedding.http import HttpEmbedder
from service.llm.port import Embedder
from service.settings import Settings
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.fakes import FakeEmbedder
from tests.support.live import served
from tests.support.memory_store import MemoryStore
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, drop, hang, stream

pytestmark = pytest.mark.anyio

TEXTS = ("Paris", "Lyon", "", "paris", "Lyon", "Nice", "Lille", "Marseille, by the sea", "Lyon")
SAID = [text for text in TEXTS if text]  # an answer without text is none
FIRST = 7  # finished before the others are let go
EARLY = {"Paris", "Lyon", "paris", "Nice", "Lille"}
BODY = {"prompt": "Which?", "num_samples": len(TEXTS), "return": ["modes", "samples", "spectrum"]}
DEADLINE = {"deadline_ms": 60_000}
ALWAYS = {"embed_early": "true"}
STREAMS = pytest.mark.parametrize(("body", "settings"), [(DEADLINE, {}), ({}, ALWAYS)])


def held(go: asyncio.Event, texts: Sequence[str] = TEXTS) -> Behaviour:
    """Stream the first answers, and the others once `go` is set."""

    async def rest(exchange: Exchange) -> None:
        await go.wait()
        for i in range(FIRST, len(texts)):
            choice = {"index": i, "finish_reason": "stop", "delta": {"content": texts[i]}}
            await exchange.event({"model": MODEL, "choices": [choice]})
        await exchange.event("[DONE]")
        exchange.writer.close()

    async def behave(exchange: Exchange) -> None:
        await exchange.start_stream()
        for i, text in enumerate(texts[:FIRST]):
            choice = {"index": i, "finish_reason": "stop", "delta": {"content": text}}
            await exchange.event({"model": MODEL, "choices": [choice]})
        await rest(exchange)

    return behave


@asynccontextmanager
async def scoring(
    folder: Path, server: OpenAIServer, embedder: Embedder, **settings: Any
) -> AsyncIterator[Callable[..., Any]]:
    """Serve the application on a socket; yield a function that scores and returns status and body."""
    chosen = Settings(data_dir=folder, llm_backend="vllm", llm_url=server.url, llm_model=MODEL, **settings)
    app = create_app(chosen, llm=build_llm(chosen), embedder=embedder, store=MemoryStore())
    async with served(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

        async def post(**body: Any) -> dict[str, Any]:
            response = await http.post("/score", json=BODY | body)
            assert response.status_code == 200, response.text
            return response.json()

        async with asyncio.timeout(20):
            yield post


def lasting(body: dict[str, Any]) -> dict[str, Any]:
    """Return what two scores of the same answers have in common, to the last bit."""
    return {name: value for name, value in body.items() if name not in ("id", "timings_ms", "usage")}


def embedded(server: EmbeddingsServer) -> list[str]:
    """Return the texts that were embedded, in order; each request's mark left out."""
    return [text for body in server.bodies for text in body["input"][1:]]


class HeldTexts:
    """Lets the last answers go once the texts have been embedded by an embeddings server."""

    def __init__(self, server: EmbeddingsServer, go: asyncio.Event, texts: set[str]) -> None:
        self._server, self._go, self._texts = server, go, texts

    def __call__(self, number: int) -> None:
        if self._texts <= set(embedded(self._server)):
            self._go.set()


@STREAMS
async def test_answers_are_handed_on_before_the_last_has_come(
    tmp_path: Path, body: dict[str, Any], settings: dict[str, Any]
) -> None:
    go = asyncio.Event()

    def heard() -> None:
        if {text for call in embedder.ahead for text in call} == EARLY:
            go.set()

    embedder = FakeEmbedder(on_ahead=heard)
    async with OpenAIServer(default=held(go)) as server:
        async with scoring(tmp_path, server, embedder, **settings) as post:
            assert (await post(**body))["samples"] == SAID
    assert embedder.calls == [("Paris", "Lyon", "paris", "Nice", "Lille", "Marseille, by the sea")]


async def test_answers_of_single_calls_are_handed_on_while_others_are_drawn(tmp_path: Path) -> None:
    go, embedder = asyncio.Event(), FakeEmbedder()
    embedder._on_ahead = go.set
    number = iter(range(99))

    async def one(exchange: Exchange) -> None:
        i = next(number)
        if i == len(TEXTS) - 1:
            await go.wait()
        await answers(TEXTS[i % len(TEXTS)], at_most=1)(exchange)

    async with OpenAIServer(default=one) as server, scoring(tmp_path, server, embedder) as post:
        await post()
    assert len(embedder.ahead[0]) >= len(EARLY)


async def test_few_short_answers_are_not_worth_a_call_and_a_long_one_is(tmp_path: Path) -> None:
    for texts, ahead in ((("a", "b", "c", "d", "a"), []), (("a", "b" * 500), [("a", "b" * 500)])):
        embedder = FakeEmbedder()
        async with OpenAIServer(default=answers(*texts)) as server:
            async with scoring(tmp_path, server, embedder, **ALWAYS) as post:
                await post(num_samples=len(texts))
        assert embedder.ahead == ahead


async def test_without_a_deadline_nothing_is_streamed_unless_set_up(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with OpenAIServer(default=answers(*TEXTS)) as server:
        async with scoring(tmp_path, server, embedder) as post:
            await post()
    assert "stream" not in server.bodies[0]
    assert embedder.ahead == []


async def test_nothing_is_handed_on_where_an_answer_takes_a_search(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with OpenAIServer(default=answers(*TEXTS)) as server:
        async with scoring(tmp_path, server, embedder, answer_regex=".+", **ALWAYS) as post:
            await post()
    assert server.bodies[0]["stream"]
    assert embedder.ahead == []


@STREAMS
async def test_the_score_is_the_same_to_the_last_bit_and_no_text_is_embedded_twice(
    tmp_path: Path, body: dict[str, Any], settings: dict[str, Any]
) -> None:
    go = asyncio.Event()

    async def score(behaviour: Behaviour, body: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        async with OpenAIServer(default=behaviour) as server, EmbeddingsServer() as embeddings:
            embeddings.before_answer = HeldTexts(embeddings, go, EARLY)
            async with scoring(tmp_path, server, HttpEmbedder(embeddings.url, "asked"), **settings) as post:
                found = lasting(await post(**body))
            assert sorted(embedded(embeddings)) == sorted({*TEXTS} - {""})
            return found

    plain = await score(answers(*TEXTS), {}, {})
    go.clear()
    assert await score(held(go), body, settings) == plain


async def test_a_model_swapped_between_the_first_answers_and_the_last_is_not_mixed(tmp_path: Path) -> None:
    found = []
    for swapped in (True, False):
        go = asyncio.Event()
        async with OpenAIServer(default=held(go)) as server, EmbeddingsServer() as embeddings:
            release = HeldTexts(embeddings, go, EARLY)

            def swap(
                number: int,
                release: HeldTexts = release,
                go: asyncio.Event = go,
                embeddings: EmbeddingsServer = embeddings,
                swapped: bool = swapped,
            ) -> None:
                if not swapped or go.is_set():
                    embeddings.weights = "B"
                release(number)

            embeddings.before_answer = swap
            async with scoring(tmp_path, server, HttpEmbedder(embeddings.url, "asked")) as post:
                found.append(lasting(await post(**DEADLINE)))
            twice = embedded(embeddings).count("Paris")
            assert twice == (2 if swapped else 1)
    assert found[0] == found[1]


async def test_what_fails_early_is_done_again_after_the_last(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with OpenAIServer(default=held(go)) as server, EmbeddingsServer() as embeddings:
        works = embeddings.default

        async def failing_once(exchange: Exchange) -> None:
            embeddings.default = works
            await exchange.send(500, {})
            go.set()

        async with scoring(tmp_path, server, HttpEmbedder(embeddings.url, "asked")) as post:
            embeddings.default = failing_once
            assert (await post(**DEADLINE))["samples"] == SAID
            assert {*TEXTS} - {""} <= set(embedded(embeddings))


async def test_answers_that_are_drawn_again_leave_nothing_behind(tmp_path: Path) -> None:
    """The first draw is of two models: its answers were told, and do not count."""
    models = iter(["a", "b", "c", "c", "c", "c"])

    async def one(exchange: Exchange) -> None:
        model = next(models, "c")
        await stream(f"by {model}", model=model)(exchange)

    async with OpenAIServer(default=one) as server, EmbeddingsServer() as embeddings:
        async with scoring(tmp_path, server, HttpEmbedder(embeddings.url, "asked")) as post:
            score = await post(num_samples=2, **DEADLINE)
    assert (score["samples"], score["lambda_max"]) == (["by c", "by c"], 1.0)


async def test_what_was_finished_before_the_server_broke_off_is_scored_where_all_is_streamed(
    tmp_path: Path,
) -> None:
    async with OpenAIServer(default=stream("Paris", "Lyon", then=drop)) as server:
        async with scoring(tmp_path, server, FakeEmbedder(), **ALWAYS) as post:
            score = await post()
    assert score["samples"] == ["Paris", "Lyon"]
    assert "partial_samples" in [warning["code"] for warning in score["warnings"]]


def early_work() -> int:
    """Return how many tasks embed early."""
    return sum("_Early._embed" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_hang_up_ends_the_early_work(tmp_path: Path) -> None:
    begun = asyncio.Event()
    embedder = FakeEmbedder(gate=asyncio.Event(), on_ahead=begun.set)
    async with OpenAIServer(default=stream(*EARLY, then=hang)) as server:
        async with scoring(tmp_path, server, embedder, **ALWAYS) as post:
            call = asyncio.create_task(post())
            await begun.wait()
            assert early_work() == 1
            call.cancel()
            while early_work() or server.active:
                await asyncio.sleep(0.01)


async def test_a_deadline_ends_the_early_work(tmp_path: Path) -> None:
    """The embedder hangs: the score fails a second after its deadline, and leaves nothing behind."""
    embedder = FakeEmbedder(gate=asyncio.Event())
    async with OpenAIServer(default=stream(*EARLY, then=hang)) as server:
        async with scoring(tmp_path, server, embedder) as post:
            with pytest.raises(AssertionError, match="deadline_exceeded"):
                await post(deadline_ms=500)
            assert (len(embedder.ahead), early_work()) == (1, 0)


async def test_callers_at_once_have_the_scores_that_each_has_alone(tmp_path: Path) -> None:
    go = asyncio.Event()
    go.set()

    async def own(exchange: Exchange) -> None:
        word = exchange.body["messages"][-1]["content"]
        await held(go, [f"{text} {word}" for text in TEXTS])(exchange)

    found = []
    for together in (True, False):
        async with OpenAIServer(default=own) as server, EmbeddingsServer() as embeddings:
            embedder = HttpEmbedder(embeddings.url, "asked", max_batch=3)
            async with scoring(tmp_path, server, embedder, **ALWAYS) as post:
                calls = [post(prompt=prompt) for prompt in ("red", "blue")]
                scores = await asyncio.gather(*calls) if together else [await call for call in calls]
                found.append([lasting(score) for score in scores])
            assert len(embedded(embeddings)) == len(set(embedded(embeddings)))
    assert found[0] == found[1]
