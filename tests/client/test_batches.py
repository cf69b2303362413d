"""Batches of any length: one outcome per item despite broken connections, with few items in progress."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest

import eigencal
from tests.client.script import QUICK, Script, ok
from tests.support.both_clients import Driver
from tests.support.fakes import FakeLLM
from tests.support.openai_server import OpenAIServer, hang, pieces, serving_in_thread
from tests.support.scripted_scores import line
from tests.support.services import until


@pytest.fixture
def fours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit requests to four items."""
    monkeypatch.setattr("eigencal.resources.scores.MAX_ITEMS", 4)


def whole(request: httpx.Request) -> httpx.Response:
    """Answer with a line for each item, in reverse order."""
    items = json.loads(request.content)["items"]
    return ok(b"".join(line(i, answer=item["prompt"]) for i, item in reversed(list(enumerate(items)))))


def sent(script: Script) -> list[list[str]]:
    return [[item["prompt"] for item in json.loads(request.content)["items"]] for request in script.seen]


def test_each_item_of_any_kind_has_one_outcome(drive: Driver, url: str, llm: FakeLLM) -> None:
    items: list[object] = [f"question {i}" for i in range(300)]
    items[100], items[101], items[102] = {"samples": ["a", "b", "b"]}, {"prompt": 7}, 7
    with drive(url) as client:
        results = {item.index: item for item in client.score_batch(iter(items), num_samples=2)}
    assert sorted(results) == list(range(300))
    assert {index for index, item in results.items() if not item.ok} == {101, 102}
    for item in (results[101], results[102]):
        assert item.error is not None and item.error.code == "invalid_request"
        with pytest.raises(eigencal.UnprocessableEntityError):
            item.unwrap()
    assert results[0].unwrap().num_samples == 2
    assert len(llm.requests) == 297


def test_long_items_are_split_into_requests_within_the_limits(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigencal.resources.scores.MAX_PART_CHARS", 100)
    sizes, items = list[int](), [f"{i} " + "x" * 50 for i in range(5)]

    def answer(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["items"]))
        return whole(request)

    with drive("http://host", answer=answer) as client:
        results = {item.index: item.unwrap().answer for item in client.score_batch(items)}
    assert [results[i] for i in range(5)] == items
    assert sizes == [2, 2, 1]


def test_lines_are_split_at_newlines_only(drive: Driver) -> None:
    """httpx also splits lines at these characters, which JSON allows in strings."""
    text = "a\u2028b\u2029c\x85d"
    with drive("http://host", answer=Script(ok(line(0, answer=text)))) as client:
        [item] = client.score_batch(["x"])
    assert item.unwrap().answer == text


@pytest.mark.parametrize("rest", [line(0)[:50], b""])
def test_only_items_without_an_outcome_are_retried(drive: Driver, rest: bytes) -> None:
    first = line(1, answer="1") + b"\n" + line(3, answer="3") + rest  # empty lines are keep-alives
    again = b"".join(line(at, answer=text) for at, text in enumerate("024"))
    script = Script(ok(first), ok(again))
    with drive("http://host", answer=script, **QUICK) as client:
        results = [(item.index, item.unwrap().answer) for item in client.score_batch(map(str, range(5)))]
    assert sorted(results) == [(i, str(i)) for i in range(5)]
    assert sent(script) == [list("01234"), list("024")]


@pytest.mark.parametrize("answer", [b"<html>\n", b'{"index": 7, "result": null}\n', line(0) + line(0)])
def test_invalid_line_is_an_error(drive: Driver, answer: bytes) -> None:
    with drive("http://host", answer=Script(ok(answer)), **QUICK) as client:
        with pytest.raises(eigencal.UnexpectedResponseError):
            list(client.score_batch(["x", "y"]))


def test_repeatedly_broken_connection_is_given_up(drive: Driver) -> None:
    script = Script(ok(b'{"ind'))
    with drive("http://host", answer=script, **QUICK) as client:
        with pytest.raises(eigencal.APIConnectionError):
            list(client.score_batch(["x"]))
        with pytest.raises(eigencal.InvalidSetupError):
            list(client.score_batch("one text"))
    assert len(script.seen) == 3


def test_items_are_consumed_lazily(drive: Driver, fours: None) -> None:
    taken = itertools.count()
    with drive("http://host", answer=whole) as client:
        lines = client.score_batch(str(next(taken)) for _ in itertools.repeat(None))
        assert len(list(itertools.islice(lines, 100))) == 100
        lines.close()
    assert next(taken) == 100


def test_abandoned_iteration_closes_its_connection(drive: Driver) -> None:
    server = OpenAIServer(default=pieces(line(0), then=hang))
    with serving_in_thread(server), drive(server.url.removesuffix("/v1")) as client:
        lines = client.score_batch(["a", "b"], timeout_s=300)
        assert next(lines).index == 0
        lines.close()
        until(lambda: server.disconnects == 1 and server.active == 0)


def test_progress_is_reported(drive: Driver) -> None:
    reports: list[tuple[int, int | None, str]] = []
    with drive("http://host", answer=whole) as client:
        for items in (["a", "b"], iter("a")):
            list(client.score_batch(items, progress=lambda *at: reports.append(at)))
    assert reports == [(1, 2, "scored"), (2, 2, "scored"), (1, None, "scored"), (1, 1, "scored")]


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [
        (False, "scored: 1 of 3\nscored: 3 of 3\n"),
        (True, "".join(f"\r\x1b[Kscored: {done} of 3" for done in (1, 2, 3)) + "\n"),
    ],
)
def test_progress_is_one_line_on_a_terminal_and_few_lines_in_a_log(
    drive: Driver,
    is_terminal: bool,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with drive("http://host", answer=whole) as client:
        list(client.score_batch(["a", "b", "c"], progress=True))
    assert capsys.readouterr().err == shown


def test_items_may_be_an_async_iterable(fours: None) -> None:
    async def source() -> AsyncIterator[str]:
        for prompt in "abcde":
            await asyncio.sleep(0)
            yield prompt

    async def main() -> list[int]:
        http = httpx.AsyncClient(transport=httpx.MockTransport(whole))
        async with http, eigencal.AsyncClient("http://host", http_client=http) as client:
            return [item.index async for item in client.score_batch(source())]

    assert asyncio.run(main()) == [3, 2, 1, 0, 4]
