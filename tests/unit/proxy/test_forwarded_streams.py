"""Streams that are forwarded: any event can be read, and words never wait."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.llm.sse import events
from service.proxy.answer import Answer
from service.proxy.stream import Chunk, forwarded


def forward(*sent: bytes, hides: bool = False) -> tuple[list[bytes], list[Chunk | bytes], Answer]:
    """Return the events that go on at once, those that wait for the score, and the answer."""

    async def received() -> AsyncIterator[bytes]:
        for piece in sent:
            yield piece

    async def read() -> list[bytes]:
        pieces = forwarded(events(received(), 8 << 20), answer, tail, hides=hides)
        return [piece async for piece in pieces]

    answer, tail = Answer(), list[Chunk | bytes]()
    return asyncio.run(read()), tail, answer


def event(*choices: Any, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


def words(text: str, finish: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}, "finish_reason": finish}


def choices_in(raw: bytes) -> Any:
    return json.loads(raw.removeprefix(b"data: "))["choices"]


DONE = b"data: [DONE]\n\n"
USAGE = event(usage={"total_tokens": 2})


@pytest.mark.parametrize("raw", [b"data:  %b\n\n", b"data: %b", b"data:%b\r\r", b"data: %b\n"])
def test_log_probabilities_are_hidden_in_an_odd_stream(raw: bytes) -> None:
    choices = [words("a", index=index) | {"logprobs": {"content": [{"logprob": -1}]}} for index in (0, 1)]
    [sent], _, answer = forward(raw % json.dumps({"choices": choices}).encode(), hides=True)
    assert [choice["logprobs"] for choice in choices_in(sent)] == [None, None]
    assert answer.text == "a"


names = ["choices", "index", "delta", "content", "finish_reason", "text", "logprobs", "model", "error"]
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["choices", "model", "error"]), nonsense), max_size=4),
    st.booleans(),
)
def test_any_chunk_can_be_forwarded(chunks: list[dict[str, Any]], hides: bool) -> None:
    sent = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    now, tail, _ = forward(*sent, hides=hides)
    assert len(now) + len(tail) >= len(sent)


def test_words_with_the_finish_reason_do_not_wait() -> None:
    first = words("Paris", "stop") | {"delta": {"role": "assistant", "content": "Paris"}, "logprobs": {}}
    now, tail, answer = forward(event(3, first, usage={"total_tokens": 2}), DONE)
    assert [json.loads(raw.removeprefix(b"data: ")) for raw in now] == [
        {"choices": [3, first | {"finish_reason": None}]}
    ]
    ended = {"index": 0, "finish_reason": "stop", "delta": {}, "logprobs": None}
    assert tail == [{"choices": [ended], "usage": {"total_tokens": 2}}, DONE]
    assert answer.is_over and answer.text == "Paris"


def test_words_after_a_finish_reason_send_the_kept_events_first() -> None:
    between = event(id="x")
    now, tail, answer = forward(event(words("Par", "stop")), between, event(words("is", "stop")), DONE)
    assert [raw == between or choices_in(raw)[0]["delta"] for raw in now] == [
        {"content": "Par"},
        {},
        True,
        {"content": "is"},
    ]
    assert len(tail) == 2 and answer.text == "Paris"


def test_other_choices_do_not_wait_for_the_score_of_the_first() -> None:
    other = [event(words("Ly", index=1)), event(words("on", index=1)), event(words("", "stop", index=1))]
    now, tail, _ = forward(event(words("Paris")), event(words("", "stop")), *other, USAGE, DONE)
    assert now == [event(words("Paris")), *other]
    assert tail[1:] == [USAGE]  # it ends the answer
