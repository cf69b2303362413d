"""Proxies of the environment are used only if the setting allows it; certificates always."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import certifi
import httpx2
import pytest

from service.addresses import proxy_for, tls
from service.embedding.http import HttpEmbedder
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, Sampling
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.openai_server import OpenAIServer

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


async def of_embedder(url: str) -> None:
    embedder = HttpEmbedder(url, "asked", proxies_from_env=True)
    await embedder.embed(["a"])
    await embedder.stop()


async def of_llm(url: str) -> None:
    llm = HttpLanguageModel(url, model="m", proxies_from_env=True)
    await llm.generate(GenerationRequest(2, Sampling(), prompt="Why?"))
    await llm.stop()


@pytest.mark.parametrize(
    ("call", "kind"), [(of_embedder, EmbeddingsServer), (of_llm, OpenAIServer)], ids=["embedder", "llm"]
)
@pytest.mark.parametrize("scheme", ["http://", "HTTP://", ""])
def test_environment_proxy_is_used_if_enabled(
    environment: pytest.MonkeyPatch,
    call: Callable[[str], Awaitable[None]],
    kind: type[OpenAIServer],
    scheme: str,
) -> None:
    async def scenario() -> None:
        # Only the proxy can answer for this host. A request to a proxy contains the whole URL.
        async with kind() as proxy:
            environment.setenv("ALL_PROXY", f"{scheme}127.0.0.1:{proxy.port}")
            await call("http://model.internal/v1")
            assert proxy.requests[-1].path.startswith("http://model.internal/v1/")

    asyncio.run(scenario())


def test_environment_proxy_is_not_used_by_default(environment: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with OpenAIServer() as server:
            environment.setenv("ALL_PROXY", "http://127.0.0.1:9")
            llm = HttpLanguageModel(server.url, model="m")
            await llm.generate(GenerationRequest(2, Sampling(), prompt="Why?"))
            await llm.stop()

    asyncio.run(scenario())


def test_no_proxy_may_hold_addresses_and_networks(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTP_PROXY", "http://proxy:3128")
    environment.setenv("NO_PROXY", "[fd00::2],fd00::/8,.internal")
    hosts = ("model.internal", "[fd00::2]:80", "model.example")
    assert [proxy_for(httpx2.URL(f"http://{host}/v1")) for host in hosts] == [None, None, "http://proxy:3128"]


def test_a_socks_proxy_is_refused_at_the_start(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ValueError, match="socks5 proxies are not supported"):
        HttpLanguageModel("http://model.internal", proxies_from_env=True)
    HttpLanguageModel("http://model.internal")


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    tls.cache_clear()
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    tls.cache_clear()


def test_certificates_of_the_environment_are_trusted(
    certificates: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path / "own.pem"
    file.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    assert len(tls().get_ca_certs()) > 10
    certificates.setenv("SSL_CERT_FILE", str(file))
    tls.cache_clear()
    assert len(tls().get_ca_certs()) == 1


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bad_certificate_file_is_named_at_the_start(
    certificates: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "own.pem"
    if content:
        file.write_text(content)
    certificates.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(ValueError, match=f"^SSL_CERT_FILE={file} cannot be read: "):
        HttpLanguageModel("http://127.0.0.1:8001")
