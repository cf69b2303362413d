"""The answer regex: bounded in time, off the event loop, and read as Python's own `re` reads it."""

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from service.errors import LLMBadResponse
from service.llm import prompting
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, Sampling
from service.llm.prompting import PromptShape, beside_the_loop, extract
from tests.support.openai_server import OpenAIServer, answers

PATTERNS = [
    r"Answer: (\w+)",
    r"(?i)the answer is:?\s*(.+?)[.\n]",
    r"\\boxed\{([^}]*)\}",
    r"^.*$",
    r"(?m)^([A-D])\)",
    r"\b\d+(?:[.,]\d+)?\b",
    r"(?<=Answer: )\S+",
    r"(?s)</reason>(.*)\Z",
    r"(?P<name>[^\W\d_]+)\s+(?P=name)",
    r"(a)|b",
    r"\[x",
    r"x{,3}y",
    "ß",
]
TEXTS = [
    "Well. Answer: Zürich.",
    "The answer is: 3,5 million.\nOr not",
    r"so \boxed{x^2} it is",
    "A) no\nB) yes",
    "one two two three",
    "<reason>…</reason>\n 42 ",
    "b a xy xxxy [x STRASSE straße 日本 ",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ordinary_patterns_find_what_pythons_own_finds(pattern: str) -> None:
    for text in TEXTS:
        match = re.search(pattern, text)
        expected = "" if match is None else match.group(1 if match.re.groups else 0) or ""
        assert extract(pattern, text) == expected


def test_a_search_that_takes_too_long_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(LLMBadResponse, match="EIGENCAL_ANSWER_REGEX took longer") as raised:
        extract("(a+)+$", "a" * 8000 + "!", longest_s=0.01)
    assert "aaaa" not in raised.value.detail


def test_answers_that_make_a_pattern_backtrack_do_not_hold_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searching = threading.Event()

    def watched(*given: Any, **more: Any) -> str:
        searching.set()
        try:
            return extract(*given, **more)
        finally:
            searching.clear()

    monkeypatch.setattr(prompting, "extract", watched)

    async def scenario() -> int:
        beats = 0  # of the loop while a search was under way

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += searching.is_set()

        shape = PromptShape(answer_regex="(a+)+$")
        # 30: a minute's work for an engine without a bound, so that this ends without the mend, too.
        async with OpenAIServer(default=answers("a" * 30 + "!", "a" * 8000 + "!")) as server:
            llm = HttpLanguageModel(server.url, model="m", shape=shape)
            beating = asyncio.create_task(beat())
            with pytest.raises(LLMBadResponse, match="EIGENCAL_ANSWER_REGEX"):
                await llm.generate(GenerationRequest(2, Sampling(), prompt="Why?"))
            beating.cancel()
            await llm.stop()
        return beats

    assert asyncio.run(scenario()) > 0


def test_draws_keep_their_order_beside_the_loop() -> None:
    shape = PromptShape(answer_regex=r"is (\w+)")
    outputs = ["it is Rome", "no match", "it is Oslo"]
    assert asyncio.run(shape.answers(outputs)) == ["Rome", "", "Oslo"]


def test_the_answers_of_a_request_share_one_bound() -> None:
    shape = PromptShape(answer_regex="(a+)+$")
    outputs = ["a" * 8000 + "!"] * 256  # at a bound for each, minutes
    with pytest.raises(LLMBadResponse, match="in all"):
        asyncio.run(shape.answers(outputs))

    left: list[float] = []

    def read(output: str, longest_s: float) -> str:
        left.append(longest_s)
        time.sleep(0.01)
        return output

    assert asyncio.run(beside_the_loop(read, ["x"] * 3, longest_s=5.0)) == ["x"] * 3
    assert 5.0 > left[0] > left[1] > left[2] > 0
