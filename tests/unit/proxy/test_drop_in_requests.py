"""Samples for a chat, and which answers count as sampled alike."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Unscorable
from service.llm.port import Sampling
from service.llm.sse import parse_object
from service.proxy.chat_score import drawn_alike, judged_choice, require_text, wire_prompt
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


@given(values, st.sampled_from(["chat", "completions"]), st.sampled_from(["messages", "prompt", "tools"]))
def test_any_body_is_sampled_or_refused(value: Any, api: Any, name: str) -> None:
    body = {"messages": [{"role": "user", "content": value}], "prompt": "?"} | {name: value}
    try:
        made = wire_prompt(body, api)
    except Unscorable as reason:
        assert reason.code in ("unreadable_request", "many_prompts")
    else:
        json.dumps(made.marks)
    drawn_alike({**body, "stop": value, "temperature": value}, Sampling())


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
    assert wire_prompt({"messages": [{"role": "user", "content": content}]}, "chat").marks == marks


LIKE = {"temperature": 0.5, "top_p": 1, "top_k": 0, "max_tokens": 64}


@pytest.mark.parametrize(
    ("body", "sampling", "alike"),
    [
        (LIKE, Sampling(), True),
        (LIKE | {"max_tokens": None, "max_completion_tokens": 64}, Sampling(), True),
        (LIKE | {"stop": "\n"}, Sampling(stop=("\n",)), True),
        (LIKE | {"stop": ["b", "a"]}, Sampling(stop=("a", "b")), True),
        (LIKE, Sampling(stop=("a",)), False),
        (LIKE, Sampling(seed=7), False),
        (LIKE | {"n": 2}, Sampling(), False),
        (LIKE | {"min_p": 0.1}, Sampling(), False),
        (LIKE | {"top_k": None}, Sampling(), False),
        (LIKE | {"max_tokens": 63}, Sampling(), False),
        (LIKE | {"stop": "\n"}, Sampling(), False),
        (LIKE | {"seed": 1}, Sampling(), False),
        (LIKE | {"frequency_penalty": 0.5}, Sampling(), False),
        (LIKE | {"logit_bias": {"7": 1}}, Sampling(), False),
        ({name: value for name, value in LIKE.items() if name != "top_p"}, Sampling(), False),
    ],
)
def test_only_calls_with_equal_sampling_are_alike(
    body: dict[str, Any], sampling: Sampling, alike: bool
) -> None:
    assert drawn_alike(body, sampling) is alike
