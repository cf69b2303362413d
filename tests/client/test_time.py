"""Time limits: they hold for answers that drip, and what is no time is none."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import eigencal
from eigencal._streaming import LineDecoder
from tests.client.test_retries import GOOD, Script
from tests.support.both_clients import Driver
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, serving_in_thread
from tests.support.scripted_batches import SCORE, line

PIECES, PAUSE_S = 60, 0.02  # what drips takes 1.2 s


def dripping(status: int, body: bytes) -> Behaviour:
    async def behave(exchange: Exchange) -> None:
        await exchange.start(status, {"content-length": str(len(body))})
        for at in range(PIECES):
            exchange.writer.write(body[at : at + 1])
            await exchange.writer.drain()
            await asyncio.sleep(PAUSE_S)
        exchange.writer.write(body[PIECES:])

    return behave


@contextmanager
def answering(behaviour: Behaviour) -> Iterator[str]:
    server = OpenAIServer(default=behaviour)
    with serving_in_thread(server):
        yield server.url.removesuffix("/v1")


PROBLEM = json.dumps({"code": "invalid_request", "detail": "no" * 100, "status": 422}).encode()


@pytest.mark.parametrize(("status", "body"), [(200, json.dumps(SCORE).encode()), (422, PROBLEM)])
def test_an_answer_that_drips_is_late_all_the_same(drive: Driver, status: int, body: bytes) -> None:
    with answering(dripping(status, body)) as url, drive(url, timeout_s=0.3) as client:
        with pytest.raises(eigencal.APITimeoutError):
            client.score("What?", timeout_s=0.2)


def test_a_line_that_drips_is_late_all_the_same(drive: Driver) -> None:
    with answering(dripping(200, line(0))) as url, drive(url) as client:
        with pytest.raises(eigencal.APITimeoutError):
            list(client.score_batch(["x"], timeout_s=0.2))
    with answering(dripping(422, PROBLEM)) as url, drive(url) as client:
        with pytest.raises(eigencal.APITimeoutError):
            list(client.score_batch(["x"], timeout_s=0.2))


def test_lines_may_be_few_as_long_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("eigencal._streaming.time.monotonic", lambda: float(next(ticks)))
    lines = LineDecoder(3.5)
    assert [list(lines.feed(piece)) for piece in (b"a", b"b\nc", b"d", b"e\n")] == [[], [b"ab"], [], [b"cde"]]
    list(lines.feed(b"x"))
    list(lines.feed(b"x"))
    with pytest.raises(eigencal.APITimeoutError):
        [list(lines.feed(b"x")) for _ in range(2)]


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "score": lambda client, limit: client.score("What?", timeout_s=limit),
    "score_batch": lambda client, limit: list(client.score_batch(["What?"], timeout_s=limit)),
    "stream_chat": lambda client, limit: list(client.stream_chat([], timeout_s=limit)),
    "data": lambda client, limit: list(client.data("cal_1", timeout_s=limit)),
    "calibrate": lambda client, limit: client.calibrate([{}], timeout_s=limit),
    "wait": lambda client, limit: client.wait("job_1", timeout_s=limit),
}


@pytest.mark.parametrize("limit", [0, float("nan"), "5"])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_time_is_refused(drive: Driver, name: str, limit: Any) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client:
        with pytest.raises(eigencal.InvalidSetupError, match="timeout_s"):
            CALLS[name](client, limit)
    assert script.seen == []


@pytest.mark.parametrize("limit", [0, float("nan"), "5"])
@pytest.mark.parametrize("kind", [eigencal.Client, eigencal.AsyncClient])
def test_a_client_refuses_it_as_well(kind: Any, limit: Any) -> None:
    with pytest.raises(eigencal.InvalidSetupError, match="timeout_s"):
        kind(timeout_s=limit)


def test_endless_is_a_time(drive: Driver) -> None:
    with drive("http://host", answer=Script(httpx.Response(200, content=line(0)))) as client:
        [item] = client.score_batch(["What?"], timeout_s=float("inf"))
    assert item.ok
