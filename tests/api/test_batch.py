"""POST /score/batch: one line per item, as soon as it is scored."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from service.app import create_app
from service.embedding.port import Embedded
from service.errors import LLMUnavailable, Overloaded
from service.scoring.routes import batch_lines
from service.settings import Settings
from tests.api.conftest import Client, client_of
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import fake_app, on_socket
from tests.support.openai_server import OpenAIServer, answers
from tests.support.sqlite_store import SqliteStore


async def lines(http, items) -> list[dict]:
    response = await http.post("/score/batch", json={"items": items})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


async def test_bad_item_does_not_affect_other_items(client: Client, llm: FakeLLM) -> None:
    llm.fail_with = [LLMUnavailable("gone")]
    items = [{"prompt": "first"}, {"samples": ["a", "b"]}, {"prompt": 1}, 7, None, {"prompt": "last"}]
    async with client() as http:
        got = {line["index"]: line for line in await lines(http, items)}
        llm.fail_with = [RuntimeError("boom")]
        [bug] = await lines(http, [{"prompt": "a"}])
    assert bug["error"]["code"] == "internal" and "boom" not in json.dumps(bug)
    assert sorted(got) == [0, 1, 2, 3, 4, 5]
    assert (got[0]["error"]["code"], got[0]["error"]["retryable"]) == ("llm_unavailable", True)
    assert got[1]["result"]["num_samples"] == 2
    for bad in (2, 3, 4):
        assert (got[bad]["error"]["code"], got[bad]["error"]["retryable"]) == ("invalid_request", False)
    assert got[5]["result"]["num_samples"] == 20


async def test_closing_a_batch_cancels_its_work(llm: FakeLLM, embedder: FakeEmbedder) -> None:
    llm.answers = {}
    app = fake_app(llm, embedder)
    lines_ = batch_lines(app.state.scoring, [{"samples": ["a", "b"]}, *[{"prompt": "p"}] * 3], "r")
    llm.gate = asyncio.Event()
    first = json.loads(await anext(lines_))
    while not llm.active:
        await asyncio.sleep(0)
    await lines_.aclose()
    assert first["index"] == 0
    assert llm.active == 0 and llm.cancelled >= 1


async def test_batch_waits_for_slots_and_loses_no_items(tmp_path: Path) -> None:
    """A server with one answer per call needs four calls per item, more than the queue holds."""
    async with OpenAIServer(default=answers("a", "b", at_most=1)) as server:
        settings = Settings(data_dir=tmp_path, llm_url=server.url, llm_slots=2, num_samples=4)
        app = create_app(settings, embedder=FakeEmbedder(8), store=SqliteStore())
        async with on_socket(app) as http:
            got = await lines(http, [{"prompt": f"question {i}"} for i in range(24)])
    assert [line for line in got if "error" in line] == []
    assert sorted(line["index"] for line in got) == list(range(24))


async def test_an_item_waits_no_longer_than_its_deadline(client: Client, llm: FakeLLM) -> None:
    llm.fail_with = [Overloaded("full", retry_after_s=60.0)]
    async with client() as http:
        [line] = await lines(http, [{"prompt": "a", "deadline_ms": 50}])
    assert (line["error"]["code"], line["error"]["retryable"]) == ("deadline_exceeded", True)


async def test_the_wait_for_the_embedder_counts_in_an_items_deadline(llm: FakeLLM, tmp_path: Path) -> None:
    class Full(FakeEmbedder):
        is_full = True

        async def embed(self, texts: Sequence[str]) -> Embedded:
            if self.is_full:
                self.is_full = False
                raise Overloaded("full", retry_after_s=0.2)
            await asyncio.sleep(0.25)
            return await super().embed(texts)

    async with client_of(llm, Full(8), tmp_path)() as http:
        [line] = await lines(http, [{"prompt": "a", "deadline_ms": 300}])
    assert line["error"]["code"] == "deadline_exceeded"


async def test_answers_wait_for_the_embedder_and_are_not_sampled_again(llm: FakeLLM, tmp_path: Path) -> None:
    class Full(FakeEmbedder):
        refusals = 2

        async def embed(self, texts: Sequence[str]) -> Embedded:
            if self.refusals:
                self.refusals -= 1
                raise Overloaded("full", retry_after_s=0.01)
            return await super().embed(texts)

    async with client_of(llm, Full(8), tmp_path)() as http:
        [line] = await lines(http, [{"prompt": "a"}])
        metrics = (await http.get("/metrics")).text
    assert line["result"]["num_samples"] == 20
    assert len(llm.requests) == 1
    assert "eigencal_score_errors_total{" not in metrics
