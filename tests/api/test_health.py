"""Health, readiness, metrics, and the root path."""

import pytest

from service.adapters.fakes import FakeEmbedder, FakeLLM
from tests.api.conftest import Client

pytestmark = pytest.mark.anyio


async def test_ready_names_the_part_that_is_not(client: Client, llm: FakeLLM, embedder: FakeEmbedder) -> None:
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


async def test_root_says_where_things_are(client: Client) -> None:
    async with client() as http:
        links = (await http.get("/")).json()["links"]
        for name in ("docs", "openapi", "health", "ready", "metrics"):
            assert (await http.get(links[name])).status_code == 200, name


async def test_metrics_count_scores(client: Client) -> None:
    async with client() as http:
        await http.post("/score", json={"samples": ["a", "b"]})
        text = (await http.get("/metrics")).text
    assert 'eigencal_scores_total{calibrated="false"} 1.0' in text
    assert 'eigencal_score_warnings_total{code="calibration_missing"} 1.0' in text


async def test_wrong_method_and_path(client: Client) -> None:
    async with client() as http:
        method = await http.get("/score")
        path = await http.get("/nowhere")
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert (path.status_code, path.json()["code"]) == (404, "not_found")
