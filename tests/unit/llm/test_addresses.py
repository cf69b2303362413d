"""LLM and embedding servers share the rules for base URLs."""

import asyncio

import httpx2
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderUnavailable, LLMUnavailable
from service.llm.client import LLM
from service.llm.connection import api_base, endpoint
from service.llm.prompt import GenerationRequest, Sampling, Template


def test_queries_of_a_caller_precede_those_of_the_base_url() -> None:
    base = api_base("https://host/openai?api-version=1", "URL")
    url = endpoint(base, "/chat/completions?trace=%2F")
    assert str(url) == "https://host/openai/chat/completions?trace=%2F&api-version=1"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://host/v1 ", "white space"),
        (" http://host", "white space"),
        ("http://host/v1\n", "white space"),
        ("http://ho st", "white space"),
        ("http://host/v1\u200b", "cannot be seen"),
        ("http://host/v1#part", "fragment"),
        ("http://host/#", "fragment"),
        ("host:8000", "must start with http"),
        ("ftp://host", "must start with http"),
        ("http://", "name a host"),
        ("http://host:99999", "name a host"),
        ("http://a..b", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://me:secret@host:port", "cannot be read"),  # pragma: allowlist secret
    ],
)
@pytest.mark.parametrize("setting", ["EIGENCAL_LLM_URL", "EIGENCAL_EMBEDDER_URL"])
def test_other_urls_are_refused_at_the_start(setting: str, address: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{setting} .*{why}") as refused:
        LLM(address) if setting == "EIGENCAL_LLM_URL" else HttpEmbedder(address, "m")
    assert "secret" not in str(refused.value)


def test_all_clients_use_the_same_base_url() -> None:
    requests = set[str]()

    def refuse(request: httpx2.Request) -> httpx2.Response:
        requests.add(str(request.url))
        return httpx2.Response(401)

    async def main() -> None:
        mock, url = httpx2.MockTransport(refuse), "https://host/api/v3?api-version=1"
        llm = LLM(url, transport=mock)
        with pytest.raises(LLMUnavailable):
            await llm.generate(GenerationRequest(2, Sampling(), Template().prompt("?")))
        with pytest.raises(EmbedderUnavailable):
            await HttpEmbedder(url, "m", transport=mock).check()
        async with llm.forward("/completions", None):
            pass

    asyncio.run(main())
    paths = ("models", "embeddings", "completions")
    assert requests == {f"https://host/api/v3/{path}?api-version=1" for path in paths}
