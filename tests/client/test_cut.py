"""Answers that end too early, though the connection ends well: as a proxy leaves them."""

import json
from typing import Any

import httpx
import pytest

import eigencal
from tests.client.test_retries import Script
from tests.support.both_clients import Driver
from tests.support.scripted_batches import line

CHUNK = b'data: {"id": "x", "choices": [{"index": 0, "delta": {"content": "Eight"}}]}\n\n'
QUICK = {"retries": 3, "longest_wait_s": 0.01}


def ok(content: bytes) -> httpx.Response:
    return httpx.Response(200, content=content)


def taken(items: Any, into: list[Any]) -> None:
    for item in items:
        into.append(item)


@pytest.mark.parametrize("rest", [b"", CHUNK[:40], b"data: [DO", b": ping\n\n"])
def test_a_chat_without_its_end_was_cut(drive: Driver, rest: bytes) -> None:
    script, came = Script(ok(CHUNK + rest)), list[Any]()
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.APIConnectionError):
        taken(client.stream_chat([]), came)
    assert [piece.content for piece in came] == ["Eight"]
    assert len(script.seen) == 1, "a stream is begun once"


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data:[DONE]\r\n", b"data: [DONE]"])
def test_a_chat_with_its_end_is_whole(drive: Driver, end: bytes) -> None:
    with drive("http://host", answer=Script(ok(CHUNK + end))) as client:
        assert [piece.content for piece in client.stream_chat([])] == ["Eight"]


def test_a_batch_cut_in_a_line_goes_on(drive: Driver) -> None:
    script = Script(ok(line(0) + line(1)[:20]), ok(b"\n" + line(0)))  # an empty line is a sign of life
    with drive("http://host", answer=script, **QUICK) as client:
        assert sorted(item.index for item in client.score_batch(["a", "b"])) == [0, 1]
    assert [len(json.loads(request.content)["items"]) for request in script.seen] == [2, 1]


@pytest.mark.parametrize(
    ("rest", "kind"),
    [(b'{"pro', eigencal.APIConnectionError), (b"<html>\n", eigencal.UnexpectedResponseError),
     (b"[7]\n", eigencal.UnexpectedResponseError)],
)  # fmt: skip
def test_data_that_are_cut_or_none(drive: Driver, rest: bytes, kind: type[Exception]) -> None:
    came: list[Any] = []
    with drive("http://host", answer=Script(ok(b'{"prompt": "a"}\n\n{"prompt": "b"}\n' + rest))) as client:
        with pytest.raises(kind):
            taken(client.data("cal_1"), came)
    assert came == [{"prompt": "a"}, {"prompt": "b"}]
