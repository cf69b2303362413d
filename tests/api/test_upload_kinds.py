"""Rows that would be sampled in several ways, posted to the whole application with its real store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder
from tests.support.live import in_process
from tests.support.reports import FEW

Client = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
PROMPTS = [{"prompt": f"question {i}", "reference": "a"} for i in range(30)]
TALKS = [{"messages": [{"role": "user", "content": f"question {i}"}], "reference": "a"} for i in range(30)]
LED = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "reference": "a"}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Return a factory of clients; its arguments are settings. There is no LLM server."""

    @asynccontextmanager
    async def make(**settings_: Any) -> AsyncIterator[httpx.AsyncClient]:
        settings = Settings(data_dir=tmp_path, llm_url="http://127.0.0.1:9/v1", **settings_)
        app = create_app(settings, embedder=FakeEmbedder(8), resamples=FEW)
        async with in_process(app) as http:
            yield http

    return make


async def post(http: httpx.AsyncClient, rows: list[Any], **options: Any) -> httpx.Response:
    return await http.post("/calibrate", json={"examples": rows, **options})


async def test_mixed_prompts_and_conversations_are_refused(client: Client) -> None:
    async with client(prompt_template="Q: {prompt}") as http:
        refused = await post(http, [*PROMPTS, *TALKS])
        assert refused.status_code == 422
        body = refused.json()
        assert body["code"] == "invalid_dev_data"
        assert "must all be drawn alike" in body["detail"]
        assert [error["loc"] for error in body["errors"]] == [["file", 1], ["file", 31]]
        assert (await http.get("/jobs")).json() == []
        assert (await post(http, TALKS)).status_code == 202
    async with client() as http:
        assert (await post(http, [*PROMPTS, *TALKS])).status_code == 202


async def test_own_system_message_makes_conversations_different(client: Client) -> None:
    async with client(system_prompt="Be brief.") as http:
        refused = await post(http, [*TALKS, LED])
        assert refused.status_code == 422
        assert [error["line"] for error in refused.json()["errors"]] == [1, 31]
