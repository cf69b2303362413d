"""Health, readiness, metrics and the root path."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.api.conftest import Client
from tests.support.drop_in import drop_in
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import fake_app, served
from tests.support.openai_server import OpenAIServer, answers, status


async def test_readyz_names_the_part_that_is_not_ready(
    client: Client, llm: FakeLLM, embedder: FakeEmbedder
) -> None:
    async with client() as http:
        assert (await http.get("/readyz")).json()["parts"]["llm"] == "ok"
        llm.available = False
        no_llm = await http.get("/readyz")
        embedder.available = False
        neither = await http.get("/readyz")
        alive = await http.get("/healthz")
    assert (no_llm.status_code, no_llm.json()["code"]) == (503, "llm_unavailable")
    assert no_llm.json()["parts"]["llm"] == "unavailable" and no_llm.json()["parts"]["embedder"] == "ok"
    assert no_llm.headers["retry-after"]
    assert neither.json()["code"] == "embedder_unavailable"
    assert alive.json()["status"] == "ok"


async def test_root_lists_the_main_paths(client: Client) -> None:
    async with client() as http:
        links = (await http.get("/")).json()["links"]
        for name in ("console", "docs", "openapi", "health", "ready", "metrics"):
            assert (await http.get(links[name])).status_code == 200, name


async def asked(port: int, method: str, path: str) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Return the status line, the headers and the body sent by the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *lines = head.split(b"\r\n")
    return status, dict(line.split(b": ", 1) for line in lines), body


@pytest.mark.parametrize("available", [True, False])
async def test_head_is_get_without_a_body(
    llm: FakeLLM, embedder: FakeEmbedder, tmp_path: Path, available: bool
) -> None:
    async with served(fake_app(llm, embedder, data_dir=tmp_path)) as port:
        llm.available = available
        for path in ("/", "/healthz", "/readyz"):
            status, headers, body = await asked(port, "GET", path)
            answer = await asked(port, "HEAD", path)
            assert answer[0] == status and (b"503" in status) == (path == "/readyz" and not available)
            assert answer[2] == b""
            for name in (b"content-type", b"content-length", b"retry-after"):
                assert answer[1].get(name) == headers.get(name), name
            assert int(headers[b"content-length"]) == len(body) > 0


async def test_metrics_show_part_health_and_job_states(
    client: Client, llm: FakeLLM, embedder: FakeEmbedder
) -> None:
    async with client() as http:
        well = (await http.get("/metrics")).text
        llm.available = False
        unwell = (await http.get("/metrics")).text
    for part in ("store", "embedder", "llm"):
        assert f'eigencal_part_up{{part="{part}"}} 1.0' in well
    assert 'eigencal_part_up{part="llm"} 0.0' in unwell and 'eigencal_part_up{part="store"} 1.0' in unwell
    for state in ("queued", "running", "succeeded", "failed", "cancelled"):
        assert f'eigencal_jobs{{state="{state}"}} 0.0' in well


async def test_responses_are_counted_by_kind_and_status(client: Client, llm: FakeLLM) -> None:
    async with client() as http:
        await http.post("/score", json={"samples": ["a", "b"]})
        llm.available = False
        await http.post("/score", json={"prompt": "?"})
        await http.post("/score/batch", json={"items": [{"samples": ["a", "b"]}]})
        await http.post("/verify", json={})
        await http.post("/v1/responses", json={"input": "?"})
        text = (await http.get("/metrics")).text
    for kind, code in (("score", 200), ("score", 503), ("batch", 200), ("gateway", 422), ("chat", 503)):
        assert f'eigencal_responses_total{{kind="{kind}",status="{code}"}} 1.0' in text
    assert 'eigencal_first_byte_seconds_count{kind="score"} 2.0' in text
    assert "/metrics" not in text


async def test_llm_calls_are_counted_by_stage_and_outcome() -> None:
    async with OpenAIServer(default=answers("Paris")) as server, drop_in(server) as made:
        await made.score()
        server.default = status(400, {"error": {"message": "no"}})
        await made.score()
        text = (await made.http.get("/metrics")).text
    assert "eigencal_llm_calls_in_flight 0.0" in text and "eigencal_llm_calls_waiting 0.0" in text
    assert re.search(r'eigencal_llm_failures_total\{code="llm_error"\} [1-9]', text)
    assert re.search(r'eigencal_score_tokens_total\{direction="completion"\} [1-9]', text)


async def test_metrics_hold_nothing_of_callers() -> None:
    prompt, answer, key = "a prompt of a caller", "an answer to it", "the-key-of-a-caller"
    async with OpenAIServer(default=answers(answer)) as server, drop_in(server, score_key=key) as made:
        made.http.headers["Authorization"] = f"Bearer {key}"
        await made.http.post("/score", json={"prompt": prompt, "model": "a model"})
        await made.http.post("/score", json={"prompt": prompt, "num_samples": prompt})
        await made.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": prompt}]})
        await made.http.post(f"/{prompt}")
        await made.at_rest()
        text = (await made.http.get("/metrics")).text
    assert "eigencal_scores_total{" in text
    for secret in (prompt, answer, key, "a model"):
        assert secret not in text
