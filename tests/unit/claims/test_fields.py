"""Fields of JSON answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.claims.fields import fields


def field_texts(answer: str) -> list[str] | None:
    fields_ = fields(answer)
    return None if fields_ is None else [field.text for field in fields_]


def test_each_value_is_a_claim_named_by_its_path() -> None:
    answer = (
        '{"name": " Ada ", "born": 1815, "works": [{"title": "Notes", "sold": null}, -1.50e3], "no": [{}]}'
    )
    assert field_texts(answer) == [
        "name: Ada",
        "born: 1815",
        "works[0].title: Notes",
        "works[0].sold: null",
        "works[1]: -1.50e3",
    ]


def test_code_fence_is_skipped_and_spans_refer_to_the_whole_answer() -> None:
    answer = '\n```json\n{"a": "x \\u00e9", "b": [true]}\n```\n'
    fields_ = fields(answer)
    assert fields_ is not None
    assert [(claim.text, answer[claim.start : claim.end]) for claim in fields_] == [
        ("a: x é", '"x \\u00e9"'),
        ("b[0]: true", "true"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "1815",
        '"text"',
        "{",
        '{"a"}',
        '{"a": }',
        '{"a": 1,}',
        '{"a": 1} and more',
        "[1 2]",
        "{'a': 1}",
        "[01x]",
        "[" * 10**6,
        "[" * 10**6 + "1" + "]" * 10**6,
        "[1] [2]",
        "[" + "1," * 10**6 + "1]",
        "Sure: {}",
    ],
)
def test_text_that_is_not_json_has_no_fields(answer: str) -> None:
    assert fields(answer) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value.strip() if isinstance(value, str) else json.dumps(value)]


@given(VALUES.filter(lambda value: isinstance(value, dict | list)), st.sampled_from([None, 2]), st.booleans())
def test_any_json_is_parsed_like_the_json_module(value: Any, indent: int | None, ascii_only: bool) -> None:
    answer = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    fields_ = fields(answer)
    assert fields_ is not None
    assert len(fields_) <= len(leaves(value))
    for field in fields_:
        (read,) = leaves([json.loads(answer[field.start : field.end])])
        assert read == field.value
