"""Proxies of the environment: no way to the servers inside, unless the operator says so."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import certifi
import pytest

from service.embedding.http import HttpEmbedder
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, Sampling
from service.remote import tls
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.openai_server import OpenAIServer


async def of_embedder(url: str, *, proxies_from_env: bool) -> None:
    embedder = HttpEmbedder(url, "asked", proxies_from_env=proxies_from_env)
    await embedder.start()
    try:
        await embedder.embed(["a"])
    finally:
        await embedder.stop()


async def of_llm(url: str, *, proxies_from_env: bool) -> None:
    llm = HttpLanguageModel(url, model="m", proxies_from_env=proxies_from_env)
    try:
        await llm.generate(GenerationRequest(2, Sampling(), prompt="Why?"))
    finally:
        await llm.stop()


CASES = [(of_embedder, EmbeddingsServer), (of_llm, OpenAIServer)]


@pytest.mark.parametrize(("call", "kind"), CASES, ids=["embedder", "llm"])
@pytest.mark.parametrize(("proxies_from_env", "scheme"), [(False, "http://"), (True, "HTTP://"), (True, "")])
def test_the_environments_proxy_is_used_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., Awaitable[None]],
    kind: type[OpenAIServer],
    proxies_from_env: bool,
    scheme: str,
) -> None:
    async def scenario() -> None:
        # The proxy is a server that answers for the other: a request to it names the whole URL.
        async with kind() as server, kind() as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, f"{scheme}127.0.0.1:{proxy.port}")
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.setenv(name, "")
            await call(server.url, proxies_from_env=proxies_from_env)
            asked, other = (proxy, server) if proxies_from_env else (server, proxy)
            assert asked.requests
            assert not other.requests
            assert asked.requests[-1].path.startswith("http://") == proxies_from_env

    asyncio.run(scenario())


def test_a_proxy_that_cannot_be_used_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    for name in ("HTTP_PROXY", "http_proxy", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="proxy of socks5 cannot be used"):
        HttpLanguageModel("http://model.internal", model="m", proxies_from_env=True)
    HttpLanguageModel("http://model.internal", model="m")


def test_certificates_of_the_environment_are_trusted_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = "-----END CERTIFICATE-----\n"
    one = tmp_path / "own.pem"
    one.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert len(tls.__wrapped__().get_ca_certs()) > 10
    monkeypatch.setenv("SSL_CERT_FILE", str(one))
    assert len(tls.__wrapped__().get_ca_certs()) == 1
