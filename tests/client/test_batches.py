"""Batches of any length: every item has one line, whatever breaks off, and little is under way."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import eigencal
from tests.support.both_clients import Driver
from tests.support.fakes import FakeLLM
from tests.support.openai_server import (
    Behaviour,
    Exchange,
    OpenAIServer,
    drop,
    hang,
    pieces,
    serving_in_thread,
)
from tests.support.scripted_batches import line, whole
from tests.support.services import until

QUICK = {"retries": 3, "longest_wait_s": 0.05}


@contextmanager
def scripted(*script: Behaviour, default: Behaviour = whole) -> Iterator[tuple[str, OpenAIServer]]:
    server = OpenAIServer(script=script, default=default)
    with serving_in_thread(server):
        yield server.url.removesuffix("/v1"), server


def sent(server: OpenAIServer) -> list[list[str]]:
    return [[item["prompt"] for item in body["items"]] for body in server.bodies]


def test_any_number_of_items_of_any_kind_each_with_its_line(drive: Driver, url: str, llm: FakeLLM) -> None:
    items: list[object] = [f"question {i}" for i in range(600)]
    items[300], items[301], items[302] = {"samples": ["a", "b", "b"]}, {"prompt": 7}, 7
    with drive(url) as client:
        found = {item.index: item for item in client.score_batch(iter(items), num_samples=2)}
    assert sorted(found) == list(range(600))
    assert {index for index, item in found.items() if not item.ok} == {301, 302}
    for item in (found[301], found[302]):
        assert item.error is not None and item.error.code == "invalid_request"
        with pytest.raises(eigencal.UnprocessableEntityError):
            item.unwrap()
    assert found[0].unwrap().num_samples == 2
    assert len(llm.requests) == 597


def test_an_item_goes_before_what_is_said_for_all(drive: Driver, url: str) -> None:
    items = ["first", {"prompt": "second", "num_samples": 4, "return_": ["samples"]}]
    with drive(url) as client:
        lines = client.score_batch(items, num_samples=3, return_=["spectrum"])
        found = {item.index: item.unwrap() for item in lines}
    assert (found[0].num_samples, found[1].num_samples) == (3, 4)
    assert found[0].spectrum is not None and found[0].samples is None
    assert found[1].spectrum is None and found[1].samples is not None


def test_a_line_ends_at_a_newline_alone(drive: Driver) -> None:
    """httpx's own lines also end at these, which JSON lets stand in a text."""
    text = "a\u2028b\u2029c\x85d"
    answer = line(0, answer=text)
    assert text.encode() in answer
    with scripted(pieces(answer[:60], answer[60:], media_type="application/x-ndjson")) as (url, _):
        with drive(url) as client:
            [item] = client.score_batch(["x"])
    assert item.unwrap().answer == text


@pytest.mark.parametrize("broken", ["in a line", "at its end", "before the first"])
def test_what_broke_off_is_asked_for_again_and_nothing_else(drive: Driver, broken: str) -> None:
    parts = [line(1, answer="1"), line(3, answer="3")]
    breaks = {
        "in a line": pieces(*parts, line(0)[:50], then=drop),
        "at its end": pieces(*parts),  # a body that ends well, but too early
        "before the first": drop,
    }
    with scripted(breaks[broken]) as (url, server), drive(url, **QUICK) as client:
        found = [(item.index, item.unwrap().answer) for item in client.score_batch(map(str, range(5)))]
    assert sorted(found) == [(i, str(i)) for i in range(5)]
    missing = list("01234") if broken == "before the first" else list("024")
    assert sent(server) == [list("01234"), missing]


def test_a_service_that_breaks_off_all_the_time_still_gets_on(drive: Driver) -> None:
    """Each attempt brings a line: what counts is how often nothing comes."""

    async def one(exchange: Exchange) -> None:
        prompt = exchange.body["items"][0]["prompt"]
        await pieces(line(0, answer=prompt), then=drop)(exchange)

    with scripted(default=one) as (url, server), drive(url, **QUICK) as client:
        assert len(list(client.score_batch(map(str, range(9))))) == 9
    with scripted(default=drop) as (url, server), drive(url, **QUICK) as client:
        with pytest.raises(eigencal.APIConnectionError):
            list(client.score_batch(["x"]))
    assert len(server.requests) == 4


@pytest.mark.parametrize("answer", [b"<html>\n", b'{"index": 7, "result": null}\n', b'{"index": "x"}\n'])
def test_a_line_that_is_none_is_an_error(drive: Driver, answer: bytes) -> None:
    with scripted(pieces(answer)) as (url, _), drive(url, **QUICK) as client:
        with pytest.raises(eigencal.UnexpectedResponseError):
            list(client.score_batch(["x"]))


def test_a_refused_batch_raises_and_nothing_more_is_sent(drive: Driver) -> None:
    async def refused(exchange: Exchange) -> None:
        await exchange.send(401, {"code": "bad_key", "detail": "no", "retryable": False})

    with scripted(whole, default=refused) as (url, server), drive(url) as client:
        lines = client.score_batch(map(str, range(9)), items_per_request=4)
        assert sorted(item.index for item in itertools.islice(lines, 4)) == [0, 1, 2, 3]
        with pytest.raises(eigencal.AuthenticationError):
            next(lines)
    assert sent(server) == [list("0123"), list("4567")]


def test_items_are_taken_as_they_are_needed(drive: Driver) -> None:
    taken = itertools.count()
    with scripted() as (url, _), drive(url) as client:
        lines = client.score_batch((str(next(taken)) for _ in itertools.repeat(None)), items_per_request=10)
        assert len(list(itertools.islice(lines, 100))) == 100
        lines.close()
    assert next(taken) == 100


def test_a_caller_who_leaves_off_leaves_nothing_behind(drive: Driver) -> None:
    with scripted(default=pieces(line(0), then=hang)) as (url, server), drive(url) as client:
        lines = client.score_batch(["a", "b"], timeout_s=300)
        assert next(lines).index == 0
        lines.close()
        until(lambda: server.disconnects == 1 and server.active == 0)


def test_progress_is_told(drive: Driver) -> None:
    told: list[tuple[int, int | None, str]] = []
    with scripted() as (url, _), drive(url) as client:
        for items in (["a", "b"], iter(["a", "b"])):
            list(client.score_batch(items, progress=lambda *at: told.append(at)))
    assert told == [
        (1, 2, "scored"), (2, 2, "scored"), (1, None, "scored"), (2, None, "scored"), (2, 2, "scored")
    ]  # fmt: skip


def test_no_items_are_no_request(drive: Driver) -> None:
    with scripted() as (url, server), drive(url) as client:
        assert list(client.score_batch([])) == []
    assert server.requests == []


@pytest.mark.parametrize("cut", [b'{"ind', b"\n"])
def test_what_breaks_off_before_a_line_every_time_is_given_up(drive: Driver, cut: bytes) -> None:
    """Half a line is nothing: neither are signs of life a reason to begin the count anew."""
    with scripted(*[pieces(cut, then=drop)] * 12) as (url, server), drive(url, **QUICK) as client:
        with pytest.raises(eigencal.APIConnectionError):
            list(client.score_batch(["x"]))
    assert len(server.requests) == 4


@pytest.mark.parametrize("index", [b"-1", b"true"])
def test_an_index_is_a_number_from_0(drive: Driver, index: bytes) -> None:
    answer = line(0).replace(b'"index": 0', b'"index": ' + index)
    with scripted(pieces(answer)) as (url, _), drive(url, **QUICK) as client:
        with pytest.raises(eigencal.UnexpectedResponseError):
            list(client.score_batch(["x", "y"]))


def test_a_line_without_a_result_was_not_scored(drive: Driver) -> None:
    with scripted(pieces(b'{"index": 0}\n')) as (url, _), drive(url) as client:
        [item] = client.score_batch(["x"])
    assert not item.ok
    with pytest.raises(eigencal.APIStatusError):
        item.unwrap()


def test_items_may_be_awaited() -> None:
    """A source that waits for a line holds no other up."""

    async def main(url: str) -> list[int]:
        came = asyncio.Event()

        async def source() -> AsyncIterator[str]:
            yield "a"
            async with asyncio.timeout(20):
                await came.wait()
            for prompt in "bcd":
                yield prompt

        found = []
        async with eigencal.AsyncClient(url) as client:
            async for item in client.score_batch(source(), items_per_request=1):
                found.append(item.index)
                came.set()
            sizes = [item.index async for item in client.score_batch(source(), items_per_request=3)]
        return found + sorted(sizes)

    with scripted() as (url, _):
        assert sorted(asyncio.run(main(url))) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_an_error_of_the_source_is_raised(drive: Driver) -> None:
    def failing() -> Iterator[str]:
        yield from "ab"
        raise KeyError("mine")

    with scripted() as (url, _), drive(url) as client, pytest.raises(KeyError, match="mine"):
        list(client.score_batch(failing(), items_per_request=1))


@pytest.mark.parametrize(("items", "size"), [("text", 1), (b"text", 1), (["x"], 0), (["x"], 257)])
def test_what_cannot_be_a_batch_is_refused(drive: Driver, items: Any, size: Any) -> None:
    with drive("http://host") as client, pytest.raises(eigencal.InvalidSetupError):
        list(client.score_batch(items, items_per_request=size))


def test_a_long_line_is_put_together_once() -> None:
    """In many pieces: put together with each of them anew, it would take minutes of computing."""
    program = (
        "import resource; from eigencal._streaming import LineDecoder\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (15, 15))\n"
        "lines, piece = LineDecoder(600.0), b'x' * 1024\n"
        "assert not any(list(lines.feed(piece)) for _ in range(1 << 16))\n"
        "assert [len(line) for line in lines.feed(b'\\n')] == [1 << 26]\n"
    )
    environment = {"PYTHONPATH": str(Path(eigencal.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
