"""Splitting texts into claims: manual cases in six languages, properties of spans, hostile texts."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.claims.segments import MAX_CHARS, Segment, claims, sentences

CASES = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data/segments.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['language']}-{case['about']}" for case in CASES])
def test_claims_of_the_case(case: dict, request: pytest.FixtureRequest) -> None:
    if "xfail" in case:
        request.applymarker(pytest.mark.xfail(reason=case["xfail"], strict=True))
    assert [claim.text for claim in claims(case["text"], question=case.get("question", ""))] == case["claims"]


def words(text: str) -> str:
    return "".join(re.findall(r"\w", text))


def assert_in_place(segments: list[Segment], text: str) -> None:
    """Check that spans ascend, are disjoint, and contain the words of their segments in order."""
    reached = 0
    for segment in segments:
        assert reached <= segment.start < segment.end <= len(text)
        assert len(segment.text) <= MAX_CHARS
        reached = segment.end
        span = iter(words(text[segment.start : segment.end]))
        assert all(letter in span for letter in words(segment.text)), segment


# Column names precede the cells of a row, and entities are decoded: the cases test both.
MARKS = st.sampled_from(
    [
        *"*_`~[](){}<>#-+=.!?:;\\'\"«»“„”。！？…1a é字я\t\r\n\0",
        *["\ud800", "\u0301", "\u200b", "👩‍👩‍👧", "🇫🇷", "**", "```", "~~~", "\n\n", "\r\n", "  \n", "    "],
        *[
            "> ",
            "- ",
            "1. ",
            "# ",
            "---",
            "\x0b",
            "\x85",
            "\u2028",
            "[a](b)",
            "![a](b)",
            "<br>",
            "<b>",
            "[^1]",
            "[a]: /b",
            "www.a.b",
        ],
        *["Dr. ", "z. B. ", "One two. ", "Is it? ", "Hello! ", "我来了。", "Он ушёл. "],
    ]
)


@settings(deadline=None, max_examples=400)
@given(st.lists(MARKS, max_size=60).map("".join))
def test_words_are_within_the_span_for_any_punctuation(text: str) -> None:
    assert_in_place(sentences(text), text)
    assert_in_place(claims(text, question=text[::2]), text)


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(blacklist_characters="|&"), max_size=300))
def test_spans_are_valid_for_any_text(text: str) -> None:
    assert_in_place(sentences(text), text)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.text("ab1 |*\\", max_size=6), min_size=1, max_size=4), min_size=1, max_size=5))
def test_spans_of_any_table_are_disjoint(rows: list[list[str]]) -> None:
    width = len(rows[0])
    text = "\n".join("|" + "|".join(row) + "|" for row in [rows[0], ["-"] * width, *rows[1:]])
    reached = 0
    for row in sentences(text):
        assert reached <= row.start < row.end <= len(text)
        reached = row.end


MOST = 200_000  # limit of characters read from the answers of a score

HOSTILE = {
    "no full stop": "word " * (MOST // 5),
    "no space": "x" * MOST,
    "Chinese without a stop": "字" * (MOST // 3),
    "stops": "." * MOST,
    "stops and spaces": "a. " * (MOST // 3),
    "zero-width": "a\u200b" * (MOST // 2),
    "list items": "- Item one is here.\n" * 10_000,
    "numbered items": "".join(f"{number}. item\n" for number in range(10_000)),
    "quotes nested": "> " * 100_000 + "inside",
    "lists nested": "- " * 50_000 + "inside",
    "lists nested by line": "".join("  " * depth + "- a\n" for depth in range(300)),
    "quotes nested by line": "".join(">" * depth + " a\n" for depth in range(300)),
    "brackets": "[" * 100_000 + "inside",
    "links open": "[a](" * 50_000,
    "stars": "*" * 100_000 + "inside",
    "stars open": "**a " * 50_000,
    "backticks": "open " + "`" * 100_000 + "inside",
    "code open": "a `` b ` " * 20_000,
    "quotes open": "«a. " * 50_000,
    "parentheses open": "(a. " * 50_000,
    "row": "| a | b |\n| - | - |\n|" + "c" * MOST + "|\n",
    "cells": "| a | b |\n| - | - |\n" + "| c " * 50_000 + "\n",
    "carriage returns": "a\r" * 100_000,
    "surrogates": "a\ud800. " * 40_000,
    "NULs": "a\0" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_covered_completely(name: str) -> None:
    text = HOSTILE[name]
    result = sentences(text)
    reached = 0
    for segment in result:
        assert reached <= segment.start < segment.end <= len(text)
        assert len(segment.text) <= MAX_CHARS
        reached = segment.end
    # Cells include the names of their columns, and numbers of list items are marks.
    inside = "".join(words(text[segment.start : segment.end]) for segment in result)
    wanted = re.sub(r"(?m)^\d+\. ", "", text.removeprefix("| a | b |\n"))
    assert inside == words(wanted)


def test_white_space_beyond_ascii_is_white_space() -> None:
    """Sentencex 1.0.32 panics at the first of them, with an error that no handler catches."""
    assert [claim.text for claim in claims("A\x85. Rome\u2003is\xa0old. It\u202fis big.")] == [
        "A . Rome is old.",
        "It is big.",
    ]


def test_long_sentence_is_split_between_words() -> None:
    pieces = sentences("word " * 1000)
    assert {word for piece in pieces for word in piece.text.split()} == {"word"}
    marked = "e\u0301" * 1500
    for piece in sentences(marked):
        assert piece.text.startswith("e")
        assert piece.text.endswith("\u0301")


def test_spans_cover_marks_letters_with_accents_and_emoji() -> None:
    text = "👩‍👩‍👧 The **cafe\u0301** is [old](http://a.b). **It** closed in `1900`."
    assert [text[claim.start : claim.end] for claim in claims(text)] == [
        "👩‍👩‍👧 The **cafe\u0301** is [old](http://a.b).",
        "**It** closed in `1900`.",
    ]
