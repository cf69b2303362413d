"""OpenTelemetry spans: which exist for a request, their parents and attributes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import OTEL_TRACES_VARIABLES, build_sender
from service.errors import LLMUnavailable
from service.tracing import OtelSpans
from tests.api.test_telemetry import PARENT, SECRET, SPAN, TRACE, collector
from tests.support.drop_in import drop_in
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.openai_server import MODEL, OpenAIServer, answers
from tests.support.replica_apps import replica_app


class Traced:
    """An application with its spans in memory."""

    def __init__(self, folder: Path) -> None:
        export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        self._folder = folder
        self._exporter = export.InMemorySpanExporter()

    @asynccontextmanager
    async def serving(self, llm: FakeLLM | None = None) -> AsyncIterator[httpx.AsyncClient]:
        request: dict[str, Any] = {"num_samples": 5, "embedder": FakeEmbedder(8)}
        async with replica_app(self._folder, "one", llm=llm, spans=self.sender(), **request) as http:
            yield http

    def sender(self) -> OtelSpans:
        return OtelSpans(exporter=self._exporter)

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> Any:
        [span_] = [span for span in self.spans if span.name == name]
        return span_


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


async def test_a_score_is_a_span_below_the_callers_with_its_work_below_it(traced: Traced) -> None:
    async with traced.serving() as http:
        await http.post("/score", json={"prompt": SECRET}, headers=PARENT)
        await http.get("/metrics", headers=PARENT)  # which is not traced
    root = traced.named("POST /score")
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, SPAN)
    assert dict(root.attributes) == {
        "http.request.method": "POST",
        "http.route": "/score",
        "http.response.status_code": 200,
    }
    below = [span for span in traced.spans if span is not root]
    assert [span.name for span in below] == ["chat fake-llm", "embeddings", "spectrum"]
    assert {span.parent.span_id for span in below} == {root.context.span_id}
    generation, embedding, spectrum = (dict(span.attributes) for span in below)
    assert generation["gen_ai.request.choice.count"] == generation["eigencal.num_samples"] == 5
    assert generation["gen_ai.response.model"] == "fake-llm"
    assert generation["gen_ai.usage.output_tokens"] > 0
    assert embedding["gen_ai.embeddings.dimension.count"] == 8
    assert spectrum["eigencal.num_distinct"] == 4
    assert SECRET not in "".join(span.to_json() for span in traced.spans)


async def test_failed_span_has_the_error_code(traced: Traced) -> None:
    async with traced.serving(FakeLLM(fail_with=[LLMUnavailable(SECRET)])) as http:
        await http.post("/score", json={"prompt": SECRET})
    root, generation = traced.named("POST /score"), traced.named("chat fake-llm")
    assert root.parent is None
    assert generation.attributes["error.type"] == "llm_unavailable" and not generation.status.is_ok
    assert (root.attributes["http.response.status_code"], root.attributes["error.type"]) == (503, "503")
    assert SECRET not in "".join(span.to_json() for span in traced.spans)


async def test_chat_has_spans_for_its_call_and_for_sampling(traced: Traced) -> None:
    async with OpenAIServer(default=answers("Paris")) as server:
        async with drop_in(server, spans=traced.sender()) as made:
            reply = await made.ask()
            await made.http.get("/v1/models")
    assert reply.json()["uncertainty"]["status"] == "scored"
    root = traced.named("POST /v1/chat/completions")
    below = [span for span in traced.spans if span is not root]
    assert sorted(span.name for span in below) == ["chat", "chat", "embeddings", "spectrum"]
    assert {span.parent.span_id for span in below} == {root.context.span_id}
    own, drawn = sorted((dict(span.attributes) for span in below if span.name == "chat"), key=len)
    assert own["http.response.status_code"] == 200 and drawn["gen_ai.request.model"] == MODEL


@pytest.mark.parametrize("named_by", OTEL_TRACES_VARIABLES[:1])
async def test_collector_receives_spans_by_otlp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as (url, got):
        monkeypatch.setenv(named_by, f"{url}/v1/traces" if "TRACES" in named_by else url)
        async with replica_app(tmp_path, "one", spans=build_sender(OtelSpans, OTEL_TRACES_VARIABLES)) as http:
            await http.post("/score", json={"prompt": SECRET}, headers=PARENT)
    [body] = [body for path, body in got if path == "/v1/traces"]
    assert SECRET.encode() not in body
    [sent] = ExportTraceServiceRequest.FromString(body).resource_spans
    assert {span.trace_id.hex() for span in sent.scope_spans[0].spans} == {TRACE}
    assert {"service.name": "eigencal"}.items() <= {
        attribute.key: attribute.value.string_value for attribute in sent.resource.attributes
    }.items()
