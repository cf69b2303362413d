"""Streams are split into events at any chunk boundaries, without changing a byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.llm.sse import Event, events
from service.proxy.completions import Completions
from service.proxy.stream import StreamedAnswer, divided

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
data_lines = texts.map(lambda text: f"data: {json.dumps({'t': text}, ensure_ascii=False)}")
other_lines = st.one_of(texts.map(lambda text: f": {text}"), st.just("event: message"), st.just("id: 7"))
blocks = st.lists(st.one_of(data_lines, other_lines), min_size=1, max_size=3)
streams = st.tuples(st.lists(blocks, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))


def read(*pieces: bytes) -> list[Event]:
    async def given_() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def every() -> list[Event]:
        return [event async for event in events(given_(), 8 << 20)]

    return asyncio.run(every())


@given(streams, st.data(), st.sampled_from([b"", b"data: {", b"data: [DONE]"]))
def test_any_split_gives_the_same_events_and_bytes(stream: Any, data: Any, rest: bytes) -> None:
    lines, end = stream
    whole = "".join(end.join([*block, "", ""]) for block in lines).encode() + rest
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=20).map(sorted))
    raws = [event.raw for event in read(*(whole[a:b] for a, b in pairwise([0, *cuts, len(whole)])))]
    assert raws == [event.raw for event in read(whole)]
    assert len(raws) == len(lines) + bool(rest) and b"".join(raws) == whole


@pytest.mark.parametrize("raw", [b"data:  %b\n\n", b"data: %b", b"data:%b\r\r", b"data: %b\n"])
def test_log_probabilities_are_found_in_an_odd_stream(raw: bytes) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"logprob": -1}]}}]}
    [event] = read(raw % json.dumps(chunk).encode())
    result = event.chunk()
    assert result is not None and Completions().without_logprobs(result)["choices"][0]["logprobs"] is None


def test_logprobs_are_removed_from_all_choices() -> None:
    choices = [{"index": index, "delta": {}, "logprobs": {"content": [{}]}} for index in range(2)]
    quiet = Completions().without_logprobs({"choices": choices})["choices"]
    assert [choice["logprobs"] for choice in quiet] == [None, None]


names = ["choices", "index", "delta", "content", "finish_reason", "text", "logprobs", "model", "error"]
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "model", "error"]), nonsense), max_size=4))
def test_any_chunk_can_be_read(chunks: list[dict[str, Any]]) -> None:
    answer = StreamedAnswer()
    for chunk in chunks:
        if answer.take(chunk):
            divided(chunk)


def test_text_on_the_finishing_chunk_is_not_delayed() -> None:
    content = {"delta": {"role": "assistant", "content": "Paris"}, "logprobs": {}}
    empty = {"delta": {}, "logprobs": None}
    chunk = {"choices": [3, {"index": 0, **content, "finish_reason": "stop"}], "usage": {"total_tokens": 2}}
    assert divided(chunk) == (
        {"choices": [3, {"index": 0, **content, "finish_reason": None}]},
        {"choices": [{"index": 0, **empty, "finish_reason": "stop"}], "usage": {"total_tokens": 2}},
    )
