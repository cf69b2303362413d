"""Streams are split into events at any chunk boundaries, without changing a byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.llm.sse import Event, events

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
