"""Who listens to a request is told its answers as they are finished: which, when, and when none."""

import asyncio
from typing import Any

import pytest

from service.llm.openai_server import HttpLanguageModel
from service.llm.port import Generation, GenerationRequest, Sampling
from service.llm.prompting import PromptShape
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, stream

Found = tuple[list[str], list[dict[str, Any]], Generation]


def heard(
    n: int, *script: Behaviour, listen: bool = True, deadline_s: float | None = None, **how: Any
) -> Found:
    """Return what a listener was told, the bodies sent, and the answers."""
    told: list[str] = []
    request = GenerationRequest(n, Sampling(), prompt="?", deadline_s=deadline_s)
    if listen:
        request = GenerationRequest(n, Sampling(), prompt="?", deadline_s=deadline_s, on_answer=told.append)

    async def main() -> Found:
        async with OpenAIServer(script[:-1], default=script[-1]) as server:
            llm = HttpLanguageModel(server.url, model=MODEL, **how)
            try:
                generation = await asyncio.wait_for(llm.generate(request), 20)
            finally:
                await llm.stop()
            return told, server.bodies, generation

    return asyncio.run(main())


def events(*choices: tuple[int, str, str | None]) -> Behaviour:
    """Stream these choices: index, piece, and why it is finished."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start_stream()
        for index, piece, finish in choices:
            choice = {"index": index, "finish_reason": finish, "delta": {"content": piece}}
            await exchange.event({"model": MODEL, "choices": [choice]})
        await exchange.event("[DONE]")
        exchange.writer.close()

    return behave


def test_answers_are_told_in_the_order_in_which_they_end_and_once_each() -> None:
    pieces = [(0, "lo", None), (1, " short ", "stop"), (1, "", "stop"), (0, "ng", "length")]
    told, _, generation = heard(2, events(*pieces), deadline_s=9)
    assert told == ["short", "long"]
    assert [draw.text for draw in generation.draws] == ["long", "short"]


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_choice_that_was_given_up_is_not_told(reason: str) -> None:
    told, _, _ = heard(2, events((0, "half an", reason), (1, "whole", "stop")), stream("again"), deadline_s=9)
    assert told == ["whole", "again"]


def test_what_is_told_is_the_answer_not_the_output() -> None:
    told, _, _ = heard(1, events((0, "<think>so</think> Paris\n", "stop")), deadline_s=9)
    assert told == ["Paris"]


def test_the_answer_regex_is_not_searched_for_on_the_event_loop() -> None:
    told, _, _ = heard(2, answers("a", "b"), deadline_s=9, shape=PromptShape(answer_regex="a|b"))
    assert told == []


def test_a_plain_reply_with_all_answers_tells_none_and_one_of_several_does() -> None:
    assert heard(2, answers("a", "b"))[0] == []
    told, bodies, _ = heard(3, answers("a"), answers("b"), answers("c"))
    assert (told, len(bodies)) == ([], 1)
    told, bodies, _ = heard(3, *(answers(text, at_most=1) for text in "abc"))
    assert sorted(told) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("n", "how", "streamed"),
    [
        (2, {"stream_to_listeners": True}, True),
        (2, {"stream_to_listeners": True, "listen": False}, False),
        (1, {"stream_to_listeners": True}, False),
        (2, {}, False),
        (2, {"deadline_s": 9.0, "listen": False}, True),
    ],
)
def test_streamed_for_a_deadline_or_where_set_up_for_who_listens_to_several(
    n: int, how: dict[str, Any], streamed: bool
) -> None:
    _, (body, *_), generation = heard(n, answers("a", "b"), **how)
    assert bool(body.get("stream")) is streamed
    assert len(generation.draws) == n
