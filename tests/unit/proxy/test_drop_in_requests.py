"""Samples for a chat: any call and any answer can be read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Unscorable
from service.llm.prompt import as_sent
from service.proxy.answer import Answer
from service.proxy.call import prompt_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.sampled_from(["messages", "prompt", "tools", "template"]))
def test_any_body_is_sampled_or_refused(value: Any, name: str) -> None:
    body = {"messages": [{"role": "user", "content": value}]} | {name: value}
    try:
        json.dumps(prompt_of(body).members)
    except Unscorable as reason:
        assert reason.code == "unreadable_request"


@given(st.dictionaries(st.sampled_from(["choices", "model"]), values))
def test_any_answer_can_be_read(payload: dict[str, Any]) -> None:
    answer = Answer()
    answer.take(payload)
    try:
        answer.candidate()
    except Unscorable as reason:
        assert reason.code


def test_only_one_choice_is_judged_if_all_have_the_same_index() -> None:
    choices = [{"index": 0, "message": {"content": text}} for text in ("Paris", "Lyon")]
    answer = Answer()
    answer.take({"choices": choices})
    assert answer.text == "Paris"


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
    members = {"messages": [{"role": "user", "content": content}]}
    assert prompt_of(members) == as_sent(members, marks)
