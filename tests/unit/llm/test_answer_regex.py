"""The answer regex has a time limit, runs off the event loop, and matches like Python's `re`."""

import asyncio
import re

import pytest

from service.errors import LLMBadResponse
from service.llm import port
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import Draw, GenerationRequest, PromptShape, Sampling
from tests.support.openai_server import OpenAIServer, answers

PATTERNS = [r"Answer: (\w+)", r"(?m)^([A-D])\)", r"(?P<name>[^\W\d_]+)\s+(?P=name)", r"(a)|b", "ß"]
TEXTS = ["Well. Answer: Zürich.", "A) no\nB) yes", "one two two three", "b a STRASSE straße 日本 ", ""]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ordinary_patterns_match_like_re(pattern: str) -> None:
    for text in TEXTS:
        match = re.search(pattern, text)
        expected = "" if match is None else match.group(1 if match.re.groups else 0) or ""
        [draw] = PromptShape(answer_regex=pattern).read([Draw(text)])
        assert draw.text == expected.strip()


def test_backtracking_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port, "MAX_SEARCH_S", 0.3)

    async def scenario() -> int:
        beats = 0  # of the loop during the call

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        shape = PromptShape(answer_regex="(a+)+$")
        # 30: a minute's work for an engine without a limit, so that the test also ends without the fix.
        async with OpenAIServer(default=answers("a" * 30 + "!", "a" * 8000 + "!")) as server:
            llm = HttpLanguageModel(server.url, model="m", shape=shape)
            beating = asyncio.create_task(beat())
            with pytest.raises(LLMBadResponse, match="EIGENCAL_ANSWER_REGEX") as raised:
                await llm.generate(GenerationRequest(2, Sampling(), prompt="Why?"))
            assert "aaaa" not in raised.value.detail
            beating.cancel()
            await llm.stop()
        return beats

    assert asyncio.run(scenario()) > 3


def test_answers_of_a_request_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MAX_SEARCH_S", 0.2)
    shape = PromptShape(answer_regex="(a+)+$")
    outputs = [Draw("a" * 8000 + "!")] * 256  # minutes with a limit for each
    with pytest.raises(LLMBadResponse, match="in all"):
        asyncio.run(shape.read_off_loop(outputs))
