"""Samples for a chat: any call and any answer can be read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Unscorable
from service.llm.sse import parse_object
from service.proxy.chat_score import judged_choice, require_text, wire_prompt
from service.proxy.routes import is_sendable
from service.proxy.stream import StreamedAnswer

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "sent", [b"", b"[]", b"7", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b"{"]
)
def test_bodies_that_cannot_be_sent_again_are_not_read(sent: bytes) -> None:
    payload = parse_object(sent)
    assert payload is None or not is_sendable(payload)


@given(values, st.sampled_from(["messages", "prompt", "tools"]))
def test_any_body_is_sampled_or_refused(value: Any, name: str) -> None:
    body = {"messages": [{"role": "user", "content": value}]} | {name: value}
    try:
        made = wire_prompt(body)
    except Unscorable as reason:
        assert reason.code == "unreadable_request"
    else:
        json.dumps(made.marks)


@given(st.dictionaries(st.sampled_from(["choices", "model"]), values))
def test_any_answer_can_be_read(payload: dict[str, Any]) -> None:
    own = StreamedAnswer()
    own.take(payload)
    for choice in (own.choice, judged_choice(payload)):
        try:
            require_text(choice)
        except Unscorable as reason:
            assert reason.code


@pytest.mark.parametrize(
    ("content", "marks"),
    [
        ("a", {}),
        ([{"type": "text", "text": "a"}], {}),
        (["a"], {"turns": ["unknown"]}),
        (7, {"turns": ["unknown"]}),
        ([{"type": "image_url"}], {"turns": ["image_url"]}),
    ],
)
def test_turns_with_other_content_are_named_by_type(content: Any, marks: dict[str, Any]) -> None:
    assert wire_prompt({"messages": [{"role": "user", "content": content}]}).marks == marks
