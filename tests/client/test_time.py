"""Time limits: they hold for answers that drip, and what is no time is none."""

import asyncio
import io
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import eigencal
from eigencal._calls.repeat import Repeat
from eigencal._sending.attempts import Attempts
from eigencal._sending.bounded import Bounded
from eigencal._sending.lines import Lines
from tests.client.test_retries import GOOD, Script
from tests.support.both_clients import Driver
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, serving_in_thread
from tests.support.scripted_batches import SCORE, line

PIECES, PAUSE_S = 60, 0.05  # what drips takes 3 s


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
    with answering(dripping(status, body)) as url, drive(url, timeout_s=0.5) as client:
        with pytest.raises(eigencal.TimedOut):
            client.score("What?")
        with pytest.raises(eigencal.TimedOut):
            client.score("What?", timeout_s=0.2)


def test_a_line_that_drips_is_late_all_the_same(drive: Driver) -> None:
    with answering(dripping(200, line(0))) as url, drive(url) as client:
        with pytest.raises(eigencal.TimedOut):
            list(client.score_batch(["x"], timeout_s=0.5))
    with answering(dripping(422, PROBLEM)) as url, drive(url) as client:
        with pytest.raises(eigencal.TimedOut):
            list(client.score_batch(["x"], timeout_s=0.5))


def test_lines_may_be_few_as_long_as_they_come() -> None:
    ticks = itertools.count()
    lines = Lines(3.5, clock=lambda: float(next(ticks)))
    assert [list(lines.feed(piece)) for piece in (b"a", b"b\nc", b"d", b"e\n")] == [[], [b"ab"], [], [b"cde"]]
    list(lines.feed(b"x"))
    list(lines.feed(b"x"))
    with pytest.raises(eigencal.TimedOut):
        [list(lines.feed(b"x")) for _ in range(2)]


def test_an_upload_ends_with_the_time_of_its_call() -> None:
    clock = [0.0]
    attempts = Attempts.of(Repeat.SAFE, 0, 0.0, 5.0, clock=lambda: clock[0])
    file = Bounded(io.BytesIO(b"abcdef"))
    file.begin(attempts)
    assert file.read(3) == b"abc"
    clock[0] = 5.0
    with pytest.raises(eigencal.TimedOut):
        file.read(3)


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "score": lambda client, limit: client.score("What?", timeout_s=limit),
    "score_batch": lambda client, limit: list(client.score_batch(["What?"], timeout_s=limit)),
    "stream_chat": lambda client, limit: list(client.stream_chat([], timeout_s=limit)),
    "data": lambda client, limit: list(client.data("cal_1", timeout_s=limit)),
    "calibrate": lambda client, limit: client.calibrate([{}], timeout_s=limit),
    "wait": lambda client, limit: client.wait("job_1", timeout_s=limit),
    "events": lambda client, limit: list(client.events("job_1", timeout_s=limit)),
}


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "5"])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_time_is_refused(drive: Driver, name: str, limit: Any) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client:
        with pytest.raises(eigencal.InvalidSetup, match="timeout_s"):
            CALLS[name](client, limit)
    assert script.seen == []


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "5"])
@pytest.mark.parametrize("kind", [eigencal.Client, eigencal.AsyncClient])
def test_a_client_refuses_it_as_well(kind: Any, limit: Any) -> None:
    with pytest.raises(eigencal.InvalidSetup, match="timeout_s"):
        kind(timeout_s=limit)


def test_endless_is_a_time(drive: Driver) -> None:
    with drive("http://host", answer=Script(httpx.Response(200, content=line(0)))) as client:
        [item] = client.score_batch(["What?"], timeout_s=float("inf"))
    assert item.ok
