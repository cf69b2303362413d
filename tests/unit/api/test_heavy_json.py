"""Which JSON is parsed on the event loop, and which is too heavy."""

import json

import pytest

from service.heavy_json import MAX_BATCH_VALUES, MAX_VALUES, is_heavy

MANY = MAX_VALUES + 1


@pytest.mark.parametrize(
    "content",
    [
        b"[" + b"[]," * MANY + b"0]",
        b"[" + b"1," * MANY + b"0]",
        b"[" * MANY,
        b'["' + b'a","' * 3 * MANY + b'"]',
        b"{" + b",".join(b'"%d":1' % i for i in range(MANY)) + b"}",
        json.dumps([["a,b"] for _ in range(MANY)]).encode(),
    ],
)
def test_many_values_are_heavy(content: bytes) -> None:
    assert is_heavy(content)


@pytest.mark.parametrize(
    "value",
    [
        "[{," * 3 * MANY,
        json.dumps([[1, {}]] * 2 * MANY),
        "\\" + '"' * 3 * MANY + "[" * MANY,
        [["a,b"] * 256 + [-0.5] * 256] * 256,
    ],
    ids=["signs", "JSON in a text", "quotes", "the largest batch"],
)
def test_long_texts_are_not_heavy(value: object) -> None:
    assert not is_heavy(json.dumps({"prompt": value}).encode(), MAX_BATCH_VALUES)


def test_unterminated_text_is_scanned_once() -> None:
    assert not is_heavy(b'"\\' * 10 * MANY)
    assert not is_heavy(b"," * MAX_VALUES + b'"\\' * 10 * MANY)
