"""The code of docs/recipes runs as the pages say."""

import copy
import gzip
import html
import importlib.util
import inspect
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.environments import LITELLM_KEY, SCORE_KEY, outcome
from tests.clients.recipes import BLOCKS, script
from tests.clients.upstream import DRAWN
from tests.support.openai_server import MODEL, OpenAIServer
from tests.support.services import service

pytestmark = pytest.mark.clients
# The output of each script in addition to the answer. The other scripts have tests of their own below.
PRINTS = {
    "ask.py": ["this answer {'probability': 0.", "calibrated False"],
    "stream.py": ["this answer {'probability': 0."],
    "later.py": ["this answer {'probability': 0."],
    "responses.py": ["this answer {'probability': 0."],
    "agents_ask.py": [
        "this answer {'probability': 0.",
        f"{DRAWN[0]}\nthis answer {{'probability': 0.",
    ],
    "ai_sdk_responses.mjs": [
        "this answer { probability: 0.",
        f"{DRAWN[0]}\nthis answer {{ probability: 0.",
    ],
    "ask.mjs": ["this answer { probability: 0."],
    "stream.mjs": ["this answer { probability: 0."],
    "ai_sdk_chat.mjs": [
        "this answer { probability: 0.",
        f"{DRAWN[0]}\nthis answer {{ probability: 0.",
    ],
    "langchain_ask.py": ["this answer {'probability': 0.", f"{DRAWN[0]}\nthis answer {{'probability': 0."],
    "llama_index_ask.py": [
        "this answer {'probability': 0.",
        f"{DRAWN[0]}\nthis answer {{'probability': 0.",
    ],
    "litellm_ask.py": ["this answer {'probability': 0."],
}
QUESTION = {"messages": [{"role": "user", "content": "What is the capital of Germany?"}]}


@pytest.mark.parametrize("name", PRINTS)
def test_a_recipe_prints_the_answer_and_its_uncertainty(name: str, ours: str, tmp_path: Path) -> None:
    done = outcome(script(name, ours, tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"{DRAWN[0]}\n" in done.stdout
    for said in PRINTS[name]:
        assert said in done.stdout


def test_without_a_calibration_a_caller_who_abstains_gets_no_answer(ours: str, tmp_path: Path) -> None:
    done = outcome(script("decide.py", ours, tmp_path))
    assert done.stdout == "I am not sure enough to answer this.\ndecision None\n", done.stderr


def asked_by_litellm(proxy: str, model: str) -> Any:
    """Return the answer of LiteLLM's proxy to the question."""
    return httpx.post(
        f"{proxy}/v1/chat/completions",
        json={"model": model, **QUESTION},
        headers={"Authorization": f"Bearer {LITELLM_KEY}"},
        timeout=60,
    ).json()


def test_litellms_proxy_before_us_passes_the_uncertainty_on(proxy: str) -> None:
    answer = asked_by_litellm(proxy, "with-uncertainty")
    assert answer["choices"][0]["message"]["content"] == DRAWN[0]
    assert answer["uncertainty"]["status"] == "scored"


def test_litellms_proxy_before_us_abstains(proxy: str) -> None:
    answer = asked_by_litellm(proxy, "sure-or-silent")
    assert answer["choices"][0]["message"]["content"] == "I am not sure enough to answer this."
    assert answer["uncertainty"]["withheld"] == DRAWN[0]
    assert answer["uncertainty"]["decision"] is None  # without a calibration


FIGURES = {"eigencal.lambda_max", "eigencal.entropy"}  # without a calibration there is no P(correct)


def test_langfuse_receives_the_figures_as_scores(ours: str, tmp_path: Path) -> None:
    """Langfuse's own client sends them, to a stand-in for the server."""
    bodies: list[tuple[str, bytes]] = []
    with collector(bodies) as langfuse:
        env = {"LANGFUSE_BASE_URL": langfuse, "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk"}
        done = outcome(script("ask_langfuse.py", ours, tmp_path), env=env)
    assert done.stdout == f"{DRAWN[0]}\n", done.stderr
    [body] = [json.loads(body) for path, body in bodies if path == "/api/public/scores"]
    assert {score["name"] for score in body} == FIGURES
    [(trace_id, span_id)] = {(score["traceId"], score["observationId"]) for score in body}
    assert all(score["value"] >= 0 and score["dataType"] == "NUMERIC" for score in body)
    [span] = spans_in(bodies, "/api/public/otel/v1/traces")
    assert (span.trace_id.hex(), span.span_id.hex()) == (trace_id, span_id)


def test_phoenix_receives_the_figures_as_annotations(ours: str, tmp_path: Path) -> None:
    """A stand-in for the server; the body is one that Phoenix 20.26.1 accepts."""
    bodies: list[tuple[str, bytes]] = []
    with collector(bodies) as phoenix:
        env = {"PHOENIX_COLLECTOR_ENDPOINT": phoenix}
        done = outcome(script("ask_phoenix.py", ours, tmp_path), env=env)
    assert done.stdout == f"{DRAWN[0]}\n", done.stderr
    [body] = [json.loads(body) for path, body in bodies if path == "/v1/span_annotations"]
    [span] = spans_in(bodies, "/v1/traces")
    assert {annotation["name"] for annotation in body["data"]} == FIGURES
    for annotation in body["data"]:
        assert annotation.keys() == {"span_id", "name", "annotator_kind", "result", "metadata"}
        assert (annotation["span_id"], annotation["annotator_kind"]) == (span.span_id.hex(), "CODE")
        assert annotation["result"]["score"] >= 0


def spans_in(bodies: list[tuple[str, bytes]], path: str) -> list[Any]:
    """Return the spans that a collector received at this path."""
    pytest.importorskip("opentelemetry.proto")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    exported = [ExportTraceServiceRequest.FromString(body) for at, body in bodies if at == path]
    return [
        span
        for one in exported
        for resource in one.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {SCORE_KEY}"}
    found: dict[str, Any] = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=60).json()
    return found


def test_the_events_of_a_score_are_below_the_callers_span(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    bodies: list[tuple[str, bytes]] = []
    with collector(bodies) as endpoint:
        database = f"sqlite:///{tmp_path / 'store.db'}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        with service(database, server, tmp_path) as made:
            url = str(made.http.base_url).rstrip("/")
            done = outcome(script("otel_ask.py", url, tmp_path))
            assert done.stdout == f"{DRAWN[0]}\n", done.stderr
        # The service sends the rest when it stops.
    exported = [ExportLogsServiceRequest.FromString(body) for path, body in bodies if path == "/v1/logs"]
    records = [
        record
        for one in exported
        for resource in one.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    named = {}
    for event in records:
        assert event.event_name == "gen_ai.evaluation.result"
        assert event.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert event.span_id.hex() == "00f067aa0ba902b7"
        told = {one.key: one.value for one in event.attributes}
        named[told["gen_ai.evaluation.name"].string_value] = told
    assert named.keys() == FIGURES | {"eigencal.candidate_probability", "eigencal.probability_correct"}
    told = named["eigencal.lambda_max"]
    assert 0 < told["gen_ai.evaluation.score.value"].double_value <= 1
    assert told["eigencal.score.id"].string_value.startswith("scr_")


ACCEPTED = b'{"message": "Accepted"}'  # as Langfuse says it; exporters do not read it


@contextmanager
def collector(bodies: list[tuple[str, bytes]]) -> Iterator[str]:
    """An OTLP collector by HTTP that keeps all bodies, by path."""

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that the library calls
            sent = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers["content-encoding"] == "gzip"
            bodies.append((self.path, gzip.decompress(sent) if packed else sent))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(ACCEPTED)))
            self.end_headers()
            self.wfile.write(ACCEPTED)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join(60)


class OpenWebUI:
    """Calls a filter function as Open WebUI does: with the arguments that its signature names."""

    def __init__(self, path: Path, **valves: Any) -> None:
        spec = importlib.util.spec_from_file_location("filter_function", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.filter = module.Filter()
        self.filter.valves = self.filter.Valves(**valves)
        self.events: list[dict[str, Any]] = []

    async def emit(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        asked: dict[str, Any] = await self.filter.inlet(body=body)
        return asked

    async def see(self, chunk: dict[str, Any]) -> dict[str, Any]:
        offered = {"__event_emitter__": self.emit, "__user__": {}, "__metadata__": {}, "__id__": "eigencal"}
        names = inspect.signature(self.filter.stream).parameters
        given = {name: value for name, value in offered.items() if name in names}
        seen: dict[str, Any] = await self.filter.stream(event=chunk, **given)
        return seen


ASKED = {
    "/v1/chat/completions": QUESTION,
    "/v1/responses": {"input": "What is the capital of Germany?"},
}


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(("unsure_below", "sign"), [(0.0, ""), (1.0, "⚠️ unsure, ")])
async def test_open_webui_shows_the_confidence_once(
    ours: str, tmp_path: Path, unsure_below: float, sign: str, path: str
) -> None:
    source = BLOCKS["filter.py"]
    assert source.startswith('"""\ntitle: ')  # where Open WebUI looks for the description of a function
    (tmp_path / "filter.py").write_text(source)
    ui = OpenWebUI(tmp_path / "filter.py", unsure_below=unsure_below)
    chunks = stream_of(ours, {"model": MODEL, **ASKED[path], "stream": True}, path)
    assert [await ui.see(chunk) for chunk in chunks] == chunks
    [event] = ui.events
    parts = [chunk.get("response", chunk) for chunk in chunks]
    [told] = [part["uncertainty"] for part in parts if "uncertainty" in part]
    said = f"{sign}confidence {told['candidate']['probability']:.2f} (not calibrated)"
    assert event == {"type": "status", "data": {"description": said, "done": True}}


async def test_open_webui_underlines_what_is_doubtful_beside_the_answer(ours: str, tmp_path: Path) -> None:
    path = tmp_path / "filter.py"
    path.write_text(BLOCKS["filter.py"])
    ui = OpenWebUI(path)
    # Of another text than the answers drawn.
    body = await ui.ask({"model": MODEL, **QUESTION, "stream": True, "temperature": 0})
    chunks = stream_of(ours, body)
    assert [await ui.see(copy.deepcopy(chunk)) for chunk in chunks] == chunks
    [marks] = [chunk["uncertainty"]["marks"] for chunk in chunks if "uncertainty" in chunk]
    [card] = [event["data"]["embeds"] for event in ui.events if event["type"] == "embeds"]
    assert marks and underlined(*card) == [mark["text"] for mark in marks if mark["doubtful"]]
    assert all(html.escape(mark["why"]) in card[0] for mark in marks if mark["doubtful"])
    hostile = "<script>alert(1)</script>"
    assert underlined(ui.filter.card([{"text": hostile, "why": hostile}])) == [hostile]


def underlined(page: str) -> list[str]:
    """Return the texts of a page's underlined elements, and check that it runs its own script alone."""
    scripts = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            scripts.extend([tag] if tag == "script" else [])

    Reader().feed(page)
    assert len(scripts) == 1
    return [html.unescape(text) for text in re.findall(r"<u>(.*?)</u>", page, re.DOTALL)]


def stream_of(url: str, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[dict[str, Any]]:
    """Return the chunks of an answer."""
    headers = {"Authorization": f"Bearer {SCORE_KEY}"}
    text = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=60).text
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(event) for event in events if event != "[DONE]"]


def test_every_block_has_a_test() -> None:
    """A new recipe is to be added to these tests."""
    with_own_tests = {
        "decide.py",
        "gateway.yaml",
        "otel_ask.py",
        "confidence.yaml",
        "verify.py",
        "ask_langfuse.py",
        "ask_phoenix.py",
        "filter.py",
    }
    assert BLOCKS.keys() == with_own_tests | PRINTS.keys()
