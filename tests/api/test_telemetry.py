"""OpenTelemetry events of scores: names, attributes, parent, and collectors that are up or down."""

import asyncio
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.app import OTEL_VARIABLES, build_events
from service.errors import LLMError, LLMUnavailable
from service.scoring import telemetry
from service.scoring.telemetry import OtelEvents
from tests.api.test_responses import events as response_events
from tests.api.test_responses import message, response
from tests.support.drop_in import drop_in
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.openai_server import (
    MODEL,
    Behaviour,
    Exchange,
    OpenAIServer,
    answers,
    draws_and,
    pieces,
    status,
)
from tests.support.replica_apps import replica_app

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
SECRET = "a prompt that no collector may get"


@pytest.fixture
def exporter() -> Any:
    export = pytest.importorskip("opentelemetry.sdk._logs.export")
    return export.InMemoryLogRecordExporter()


def service(folder: Path, exporter: Any, llm: FakeLLM | None = None, **settings: Any) -> Any:
    request = {"num_samples": 5, "decides": True, "embedder": FakeEmbedder(8)} | settings
    return replica_app(folder, "one", llm=llm, events=OtelEvents(exporter=exporter), **request)


def log_records(exporter: Any) -> list[Any]:
    return [log.log_record for log in exporter.get_finished_logs()]


def content_of(event: Any) -> str:
    """Return the body and the attributes of an event as text."""
    return f"{event.body} {dict(event.attributes)}"


def by_name(exporter: Any) -> dict[str, Any]:
    """Return the events of a single score by the name of their quantity."""
    events = log_records(exporter)
    named = {event.attributes["gen_ai.evaluation.name"]: event for event in events}
    assert len(named) == len(events)
    return named


def values_of(exporter: Any) -> dict[str, float | None]:
    return {
        name: event.attributes.get("gen_ai.evaluation.score.value")
        for name, event in by_name(exporter).items()
    }


async def test_score_is_an_event_for_each_quantity(tmp_path: Path, exporter: Any) -> None:
    llm = FakeLLM(default=["Paris"])
    async with service(tmp_path, exporter, llm, target_error=0.18) as http:
        body = {"prompt": SECRET, "candidate": "Paris"}
        score = (await http.post("/score", json=body, headers=PARENT)).json()
    # Pending events are sent at the stop.
    assert values_of(exporter) == {
        "eigencal.probability_correct": score["candidate"]["probability_correct"],
        "eigencal.candidate_probability": score["candidate"]["probability"],
        "eigencal.lambda_max": score["lambda_max"],
        "eigencal.entropy": score["entropy"],
    }
    events = by_name(exporter)
    for event in events.values():
        assert event.event_name == "gen_ai.evaluation.result"
        assert (f"{event.trace_id:032x}", f"{event.span_id:016x}") == (TRACE, SPAN)
    attributes = dict(events["eigencal.probability_correct"].attributes)
    assert attributes.pop("gen_ai.evaluation.score.label") == "answer"
    assert attributes.pop("gen_ai.evaluation.explanation") == score["decision"]["reason"]
    for name in ("gen_ai.evaluation.name", "gen_ai.evaluation.score.value"):
        del attributes[name]
    used = score["calibration"]
    assert attributes == {
        "gen_ai.request.model": "fake-llm",
        "gen_ai.evaluation.evaluator.id": used["id"],
        "gen_ai.evaluation.evaluator.version": used["created_at"].replace("Z", "+00:00"),
        "eigencal.score.id": score["id"],
        "eigencal.num_samples": 5,
    }
    assert attributes.items() <= events["eigencal.lambda_max"].attributes.items()
    assert exporter.get_finished_logs()[0].resource.attributes["service.name"] == "eigencal"


async def test_unknown_quantity_has_no_value(tmp_path: Path, exporter: Any) -> None:
    async with service(tmp_path, exporter, decides=False) as http:
        body = {"prompt": SECRET, "calibration": "none", "target_error": 0.1}
        score = (await http.post("/score", json=body)).json()
    assert values_of(exporter) == {
        "eigencal.probability_correct": None,
        "eigencal.lambda_max": score["lambda_max"],
        "eigencal.entropy": score["entropy"],
    }
    event = by_name(exporter)["eigencal.probability_correct"]
    assert "gen_ai.evaluation.score.label" not in event.attributes
    assert not [name for name in event.attributes if "evaluator" in name]
    assert event.trace_id == 0
    for event in log_records(exporter):
        assert SECRET not in content_of(event) and "Paris" not in content_of(event)


async def test_event_lacks_the_words_of_the_llm_server(tmp_path: Path, exporter: Any) -> None:
    """The LLM server's message may repeat the prompt. The score has it; the event does not."""
    refusal = LLMError("The LLM server answered with status 400.", llm_status=400, llm_message=SECRET)
    llm = FakeLLM()
    llm.fail_questions = [refusal] * 100
    body = {"samples": ["Paris", "Lyon", "Nice"], "prompt": "q", "compare": "llm", "calibration": "none"}
    async with service(tmp_path, exporter, llm, decides=False) as http:
        score = (await http.post("/score", json=body)).json()
    assert SECRET in str(score["warnings"])
    for event in log_records(exporter):
        assert event.attributes["eigencal.warnings"] == tuple(found["code"] for found in score["warnings"])
        assert SECRET not in content_of(event)


def sent_as_stream(*events: dict[str, Any]) -> Behaviour:
    return pieces(*(b"data: %b\n\n" % json.dumps(event).encode() for event in events))


TEXT = {"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
DELTA = {"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}
CHAT = {"id": "resp_1", "model": MODEL}
CHATS = {
    False: status(200, {**CHAT, "choices": [TEXT]}),
    True: sent_as_stream({**CHAT, "choices": [DELTA]}),
}
RESPONSES = {
    False: status(200, response(message("Paris"))),
    True: sent_as_stream(*response_events(message("Paris"))),
}


@pytest.mark.parametrize("abstains", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "answered"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET}]}, CHATS),
        ("/v1/responses", {"input": SECRET}, RESPONSES),
    ],
    ids=["chat", "response"],
)
async def test_event_has_the_id_of_the_answer(
    path: str, body: Any, answered: dict[bool, Behaviour], stream: bool, abstains: bool, exporter: Any
) -> None:
    async def own(exchange: Exchange) -> None:
        await answered[exchange.body.get("stream", False)](exchange)

    async with OpenAIServer(default=draws_and(own, answers("Paris"))) as server:
        async with drop_in(server, events=OtelEvents(exporter=exporter), abstain=abstains) as made:
            await made.http.post(path, json={"model": MODEL, "stream": stream, **body})
    assert {event.attributes["gen_ai.response.id"] for event in log_records(exporter)} == {"resp_1"}
    assert "eigencal.lambda_max" in by_name(exporter)


async def test_error_gives_an_error_event(tmp_path: Path, exporter: Any) -> None:
    llm = FakeLLM(fail_with=[LLMUnavailable("gone")])
    async with service(tmp_path, exporter, llm) as http:
        await http.post("/score", json={"prompt": SECRET}, headers=PARENT)
    [event] = log_records(exporter)
    assert dict(event.attributes) == {
        "gen_ai.evaluation.name": "eigencal.probability_correct",
        "error.type": "llm_unavailable",
    }
    assert f"{event.trace_id:032x}" == TRACE


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Run an OTLP collector on its own port; yield the received requests."""
    got: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("named_by", OTEL_VARIABLES)
async def test_collector_receives_events_by_otlp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    with collector() as (url, got):
        monkeypatch.setenv(named_by, f"{url}/v1/logs" if "LOGS" in named_by else url)
        events = build_events()
        async with replica_app(tmp_path, "one", events=events) as http:
            score = (await http.post("/score", json={"prompt": SECRET}, headers=PARENT)).json()
    [body] = [body for path, body in got if path == "/v1/logs"]
    assert SECRET.encode() not in body
    record = ExportLogsServiceRequest.FromString(body).resource_logs[0].scope_logs[0].log_records[0]
    assert (record.event_name, record.trace_id.hex()) == ("gen_ai.evaluation.result", TRACE)
    values = {attribute.key: attribute.value for attribute in record.attributes}
    assert values["eigencal.score.id"].string_value == score["id"]


async def test_unavailable_collector_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setattr(telemetry, "STOP_S", 0.1)
    with collector(status=503) as (url, _):
        monkeypatch.setenv(OTEL_VARIABLES[1], url)
        events = build_events()
        async with asyncio.timeout(60):
            async with replica_app(tmp_path, "one", events=events) as http:
                responses = [await http.post("/score", json={"prompt": "?"}) for _ in range(5)]
    assert {response.status_code for response in responses} == {200}


def test_start_reports_missing_opentelemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
    monkeypatch.setenv(OTEL_VARIABLES[0], "http://127.0.0.1:1")
    assert build_events() is None
    assert "not installed" in caplog.text
