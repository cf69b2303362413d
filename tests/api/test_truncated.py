"""Answers cut by max_tokens, from a real LLM server over sockets to the score."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder
from tests.support.live import on_socket
from tests.support.openai_server import Exchange, OpenAIServer, completion
from tests.support.sqlite_store import SqliteStore

MESSAGES = [{"role": "user", "content": "How do I get a job?"}]


def cutting(number: int) -> Any:
    """Truncate the first answers of each call."""

    async def behave(exchange: Exchange) -> None:
        payload = completion(exchange, ["Paris"] * exchange.body["n"], "stop")
        for choice in payload["choices"][:number]:
            choice["finish_reason"] = "length"
        await exchange.send(200, payload)

    return behave


@asynccontextmanager
async def service(server: OpenAIServer, folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    made = Settings(llm_url=server.url, num_samples=10, data_dir=folder, **settings)
    async with on_socket(create_app(made, embedder=FakeEmbedder(8), store=SqliteStore())) as http:
        yield http


async def warnings(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, str]:
    score = (await http.post("/score", json=body | {"calibration": "none"})).raise_for_status().json()
    return {warning["code"]: warning["message"] for warning in score["warnings"]}


@pytest.mark.parametrize(("cut", "warned"), [(0, False), (4, False), (5, True), (10, True)])
async def test_half_truncated_answers_give_a_warning(tmp_path: Path, cut: int, warned: bool) -> None:
    async with OpenAIServer(default=cutting(cut)) as server, service(server, tmp_path) as http:
        warnings_ = await warnings(http, {"prompt": "p", "sampling": {"max_tokens": 30}})
        counted = (await http.get("/metrics")).text
    assert ("truncated_samples" in warnings_) is warned
    assert ('eigencal_score_warnings_total{calibration="",code="truncated_samples"} 1.0' in counted) is warned
    if warned:
        assert f"{cut} of 10 answers were cut by max_tokens (30)" in warnings_["truncated_samples"]


@pytest.mark.parametrize(
    ("settings", "prompt", "conversation"),
    [
        ({}, 256, 256),
        ({"llm_api": "completions"}, 64, 256),
        ({"max_tokens": 64}, 64, 64),
    ],
)
async def test_token_limit_depends_on_the_api(
    tmp_path: Path, settings: dict[str, Any], prompt: int, conversation: int
) -> None:
    async with OpenAIServer() as server, service(server, tmp_path, **settings) as http:
        await warnings(http, {"prompt": "p"})
        await warnings(http, {"messages": MESSAGES})
        await warnings(http, {"messages": MESSAGES, "sampling": {"max_tokens": 9}})
    limits = [body["max_tokens"] for body in server.bodies]
    assert [limit for limit in limits if limit > 1] == [prompt, conversation, 9]  # others are self-checks
