"""Sending, retrying and ending calls. Batches and jobs have their own tests."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import eigencal
from eigencal import Client
from tests.client.script import GOOD, QUICK, Script, ok, problem, taken
from tests.support.both_clients import Driver
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread, status
from tests.support.scripted_scores import SCORE

# Requests


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"], ids=lambda value: ascii(value)[:7])
def test_values_that_are_not_json_are_not_sent(drive: Driver, value: object) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client:
        with pytest.raises(eigencal.InvalidSetupError, match="cannot be sent"):
            client.score("What?", model=value)
    assert script.seen == []


@pytest.mark.parametrize("name", ["", "..", None])
def test_invalid_id_is_not_sent(drive: Driver, name: Any) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetupError):
        client.job(name)
    assert script.seen == []


def test_callers_http_client_stays_open_and_follows_no_redirects() -> None:
    script = Script(GOOD, httpx.Response(307, headers={"location": "http://elsewhere/score"}), GOOD)
    transport = httpx.MockTransport(script)
    with httpx.Client(transport=transport, headers={"x-mine": "1"}, follow_redirects=True) as http:
        with Client("http://host", http_client=http) as client:
            client.score("What?")
            with pytest.raises(eigencal.UnexpectedResponseError, match="elsewhere"):
                client.score("What?")
        assert not http.is_closed
    assert [request.headers["x-mine"] for request in script.seen] == ["1", "1"]


# The environment


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@contextmanager
def service() -> Iterator[OpenAIServer]:
    with serving_in_thread(OpenAIServer(default=status(200, SCORE))) as server:
        yield server


def test_a_proxy_of_the_environment_is_used(drive: Driver, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("NO_PROXY", "[::1],fd00::/8")
    with service() as proxy:
        environment.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        with drive("http://service.internal") as client:
            client.score("What?")
        assert [request.path for request in proxy.requests] == ["http://service.internal/score"]


@pytest.mark.parametrize(
    ("proxy", "why"),
    [("socks5://127.0.0.1:1", r"httpx2\[socks\]"), ("socks4://127.0.0.1:1", "cannot be used")],
)
def test_unusable_proxy_is_named(
    drive: Driver, environment: pytest.MonkeyPatch, proxy: str, why: str
) -> None:
    environment.setenv("ALL_PROXY", proxy)
    environment.setenv("NO_PROXY", "[::1],fd00::/8")
    with pytest.raises(eigencal.InvalidSetupError, match=why), drive("http://service.internal"):
        pass


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bad_certificate_file_is_named(
    drive: Driver, environment: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "own.pem"
    if content:
        file.write_text(content)
    environment.setenv("SSL_CERT_FILE", str(file))
    for url in ("http://127.0.0.1:8000", "https://service.internal"):
        with (
            pytest.raises(eigencal.InvalidSetupError, match=f"^SSL_CERT_FILE={file} cannot be read"),
            drive(url),
        ):
            pass


def test_408_on_an_idle_connection_is_not_a_response(drive: Driver) -> None:
    written = threading.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(200, SCORE)
        await asyncio.sleep(0.01)
        exchange.writer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        written.set()

    with serving_in_thread(OpenAIServer(default=answer)) as server:
        with drive(f"http://127.0.0.1:{server.port}", retries=0) as client:
            for _ in range(3):
                assert client.score("What?").answer == "Eight"
                assert written.wait(60)
                written.clear()
        assert server.accepted == 3


# Retries

PASSING: list[Any] = [
    httpx.ConnectError("no"), httpx.ReadError("broke off"), problem(429, "rate_limited", retryable=False),
    problem(503, "overloaded"), problem(502, "llm_bad_response"),
]  # fmt: skip


def name_of(step: Any) -> str:
    return str(step.json()["code"]) if isinstance(step, httpx.Response) else type(step).__name__


@pytest.mark.parametrize("step", PASSING, ids=name_of)
def test_score_is_retried_after_transient_errors(drive: Driver, step: Any) -> None:
    script = Script(step, step, GOOD)
    with drive("http://host", answer=script, **QUICK) as client:
        assert client.score("What?").answer == "Eight"
    assert len(script.seen) == 3


@pytest.mark.parametrize(
    ("step", "times"),
    [
        (httpx.ConnectError("no"), 3),
        (problem(503, "overloaded"), 3),
        (httpx.ReadError("no"), 1),
        (problem(503, "store_unavailable"), 1),
    ],
)
@pytest.mark.parametrize("name", ["chat", "create_key", "retry", "correct_rows"])
def test_calls_with_side_effects_are_not_retried(drive: Driver, step: Any, times: int, name: str) -> None:
    script = Script(step)
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.EigencalError):
        getattr(client, name)(*{"chat": [[]], "correct_rows": ["x", []]}.get(name, ["x"]))
    assert len(script.seen) == times


@pytest.mark.parametrize("limits", [{"timeout_s": 0.2}, {"deadline_ms": 200}], ids=str)
def test_no_retry_starts_after_the_time_limit(drive: Driver, limits: dict[str, Any]) -> None:
    script = Script(problem(503, "overloaded"))
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.ServerError):
        client.score("What?", **limits)
    assert len(script.seen) == 1


# Responses that end too early on a properly closed connection, as after a proxy

CHUNK = b'data: {"id": "x", "choices": [{"index": 0, "delta": {"content": "Eight"}}]}\n\n'


@pytest.mark.parametrize("rest", [b"", CHUNK[:40], b": ping\n\n"])
def test_chat_stream_without_done_is_an_error(drive: Driver, rest: bytes) -> None:
    script, pieces = Script(ok(CHUNK + rest)), list[Any]()
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.APIConnectionError):
        taken(client.stream_chat([]), pieces)
    assert [piece.content for piece in pieces] == ["Eight"]
    assert len(script.seen) == 1, "a stream is begun once"


@pytest.mark.parametrize("rest", [b'{"pro', b"[7]\n"])
def test_truncated_data_raise_an_error(drive: Driver, rest: bytes) -> None:
    rows = b'{"prompt": "a\xe2\x80\xa8"}\n\n{"prompt": "b"}\n'
    with drive("http://host", answer=Script(ok(rows), ok(rows + rest))) as client:
        assert client.data("cal_1") == ({"prompt": "a\u2028"}, {"prompt": "b"})
        with pytest.raises(eigencal.UnexpectedResponseError):
            client.data("cal_1")
