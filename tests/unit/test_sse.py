"""Streams are cut into events wherever their pieces begin and end, and not a byte of them is changed."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import LLMBadResponse
from service.proxy.chat_score import Uncertainty
from service.proxy.stream import EventReader, StreamRewriter

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
data_lines = texts.map(lambda text: f"data: {json.dumps({'t': text}, ensure_ascii=False)}")
other_lines = st.one_of(texts.map(lambda text: f": {text}"), st.just("event: message"), st.just("id: 7"))
events = st.lists(st.one_of(data_lines, other_lines), min_size=1, max_size=3)
streams = st.tuples(st.lists(events, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))


def joined(stream: tuple[list[list[str]], str]) -> bytes:
    made, end = stream
    return "".join(end.join([*lines, "", ""]) for lines in made).encode()


@given(streams, st.data(), st.sampled_from([b"", b"data: {", b"data: [DONE]"]))
def test_any_split_gives_the_same_events_and_bytes(stream, data, rest) -> None:
    whole = joined(stream) + rest
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=20).map(sorted))
    edges = [0, *cuts, len(whole)]
    at_once, bit_by_bit = EventReader(), EventReader()
    expected = at_once.feed(whole)
    found = [event for a, b in pairwise(edges) for event in bit_by_bit.feed(whole[a:b])]
    assert [one.raw for one in found] == [one.raw for one in expected] and len(found) == len(stream[0])
    assert b"".join(event.raw for event in found) + bit_by_bit.rest() == whole


def test_an_event_without_end_is_refused_before_it_fills_the_memory(monkeypatch) -> None:
    monkeypatch.setattr("service.proxy.stream.MAX_EVENT_BYTES", 1000)
    reader = EventReader()
    reader.feed(b"data: " + b"x" * 900)
    with pytest.raises(LLMBadResponse):
        reader.feed(b"x" * 100)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_data_are_one_object(end: bytes) -> None:
    [event] = EventReader().feed(end.join([b'data: {"a":', b"data:  1}", b"", b""]))
    assert event.chunk() == {"a": 1} and event.data == '{"a":\n 1}'


@pytest.mark.parametrize("data", [b"[DONE]", b"", b"7", b"[" * 50_000, b"{" * 50_000, b'{"a": }', b"\xff"])
def test_what_is_no_object_is_no_chunk(data: bytes) -> None:
    [event] = EventReader().feed(b"data: " + data + b"\n\n")
    assert event.chunk() is None and event.is_last == (data == b"[DONE]")


@pytest.mark.parametrize("raw", [b"data:  %b\n\n", b"data: %b", b"data:%b\r\r", b"data: %b\n"])
def test_log_probabilities_that_were_not_asked_for_go_on_in_no_odd_stream(raw: bytes) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"logprob": -1}]}}]}
    rewriter = StreamRewriter(hides_logprobs=True)
    passed = rewriter.feed(raw % json.dumps(chunk).encode()) + rewriter.rest()
    assert b"-1" not in passed and json.loads(passed.strip()[5:])["choices"][0]["delta"] == {"content": "a"}


nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "index",
                    "delta",
                    "content",
                    "finish_reason",
                    "text",
                    "logprobs",
                    "model",
                    "error",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "model", "error"]), nonsense), max_size=4))
def test_no_chunk_breaks_the_reading_of_a_stream(chunks) -> None:
    tap = StreamRewriter()
    raw = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    passed = tap.feed(raw)
    held = tap.holds
    everything = passed + tap.release(Uncertainty("scr_1", "")) + tap.rest()
    # One more where the finishing chunk holds words: they go before it.
    assert everything.count(b"\n\n") in (len(chunks), len(chunks) + 1)
    assert held or everything == raw


@pytest.mark.parametrize(
    ("said", "empty"),
    [
        ({"delta": {"role": "assistant", "content": "Paris"}}, {"delta": {}}),
        ({"text": "Paris", "logprobs": {}}, {"text": "", "logprobs": None}),
    ],
)
def test_words_on_the_finishing_chunk_wait_for_no_score(said, empty) -> None:
    chunk = {"choices": [{"index": 0, **said, "finish_reason": "stop"}], "usage": {"total_tokens": 2}}
    tap = StreamRewriter()
    at_once = json.loads(tap.feed(b"data: %b\n\n" % json.dumps(chunk).encode())[6:])
    assert tap.holds and at_once == {"choices": [{"index": 0, **said, "finish_reason": None}]}
    held = json.loads(tap.release(Uncertainty("scr_1", ""))[6:])
    choice = held["choices"][0]
    choice.get("delta", {}).pop("uncertainty", None)
    assert choice == {"index": 0, **empty, "finish_reason": "stop"}
    assert held["usage"] == chunk["usage"] and held["uncertainty"]["status"] == "pending"


def test_a_role_alone_waits_with_the_finish() -> None:
    chunk = {
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]
    }
    tap = StreamRewriter()
    assert tap.feed(b"data: %b\n\n" % json.dumps(chunk).encode()) == b"" and tap.holds


def test_what_is_no_choice_goes_by_with_the_words() -> None:
    chunk = {"choices": [3, {"text": "Paris", "finish_reason": "stop"}]}
    tap = StreamRewriter()
    at_once = json.loads(tap.feed(b"data: %b\n\n" % json.dumps(chunk).encode())[6:])
    assert at_once["choices"] == [3, {"text": "Paris", "finish_reason": None}]
