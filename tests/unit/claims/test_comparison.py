"""Answers compared by an LLM: its prompts, and the kernel from its replies."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from service.claims.comparison import (
    EXAMPLES,
    MAX_CHARS,
    RULE,
    UNRELATED,
    Comparer,
)
from service.errors import DeadlineExceeded, LLMBadResponse
from service.llm.ask import Asker, probability_of_yes
from service.llm.prompt import GenerationRequest, LLMIdentity
from tests.support.comparing import ComparingLLM, Same

QUESTION = "Which planet is the largest?"


def compared(texts: list[str], same: Same, **more: object) -> tuple[np.ndarray, ComparingLLM]:
    llm = ComparingLLM(same)
    found = asyncio.run(Comparer(Asker(llm)).compare(QUESTION, texts, **more))  # type: ignore[arg-type]
    return found.same, llm


def never(first: str, second: str) -> float:
    return 0.0


def test_the_smaller_probability_of_both_orders_counts() -> None:
    yes = {("Jupiter", "Saturn"): 0.2, ("Saturn", "Jupiter"): 0.6}
    same, llm = compared(["Jupiter", "Saturn"], lambda *pair: yes.get(pair, 0.0))
    assert same == pytest.approx(np.array([[1.0, 0.2], [0.2, 1.0]]))
    assert sorted(llm.compared) == sorted(
        [("Jupiter", "Saturn"), ("Saturn", "Jupiter"), (UNRELATED, "Jupiter"), (UNRELATED, "Saturn")]
    )
    assert {request.sampling.max_tokens for request in llm.questions} == {1}


def test_an_answer_is_compared_by_one_of_equal_words() -> None:
    same, llm = compared(["Jupiter", "jupiter.", "Saturn"], lambda *pair: 0.25)
    assert same[0, 2] == same[1, 2] == 0.25
    assert "jupiter." not in {text for pair in llm.compared for text in pair}


def test_the_prompt_begins_with_the_rule_and_the_examples() -> None:
    _, llm = compared(["Jupiter", "Saturn"], never)
    beginnings = [request.prompt.members["messages"][:-1] for request in llm.questions]
    assert all(turns == beginnings[0] for turns in beginnings)
    assert beginnings[0][0]["content"].startswith(RULE)
    assert [turn["content"] for turn in beginnings[0][1::2]] == [reply for *_, reply in EXAMPLES]


@pytest.mark.parametrize("text", ["", "x " * MAX_CHARS])
def test_empty_and_long_texts_are_not_compared(text: str) -> None:
    same, llm = compared(["Jupiter", "Saturn", text], never)
    assert np.isnan(same[2, :2]).all()
    assert all(text not in pair for pair in llm.compared)


def test_the_most_important_texts_are_compared() -> None:
    texts = ["Jupiter", "Mars", "Venus", "", "jupiter.", "Saturn"]
    yes = {"JS": 0.1, "JM": 0.2, "JV": 0.3, "MV": 0.4}
    same, llm = compared(
        texts,
        lambda *pair: yes.get("".join(sorted(text[0] for text in pair)), 0.0),
        order=[4, 3, 1, 2],
        further=[2],
        most=2,
    )
    assert same[:3, :3] == pytest.approx(np.array([[1, 0.2, 0.3], [0.2, 1, 0.4], [0.3, 0.4, 1]]))
    assert same[4] == pytest.approx([1, 0.2, 0.3, np.nan, 1, np.nan], nan_ok=True)
    assert np.isnan(same[[3, 5]][:, :3]).all()
    assert len(llm.compared) == 6 + 3  # both orders of each pair, and each text with an unrelated one


async def test_a_long_comparison_leaves_turns_to_another() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    llm = ComparingLLM(never)
    llm.until = asyncio.Event()
    comparer = Comparer(Asker(llm, at_once=2))
    long = asyncio.ensure_future(comparer.compare(QUESTION, [f"t{i}" for i in range(30)], most=30))
    await asyncio.sleep(0)
    short = asyncio.ensure_future(comparer.compare(QUESTION, ["a1", "b2"]))
    await asyncio.sleep(0)
    await asyncio.to_thread(int)  # the only thread has read the texts of both
    for _ in range(20):
        await asyncio.sleep(0)  # both ask
    llm.until.set()
    await short
    assert not long.done()
    await long


class Silent(ComparingLLM):
    """Does not know the name of its model before it has answered."""

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        return replace(super().identity(request), answered=False)


def test_no_known_reply_is_asked_for_again_if_the_model_has_not_answered_yet() -> None:
    first = asyncio.run(Comparer(Asker(ComparingLLM(never))).compare(QUESTION, ["a1", "b2", "c3"]))
    again = Silent(never)
    asyncio.run(Comparer(Asker(again)).compare(QUESTION, ["a1", "b2", "c3"], known=first.replies))
    assert again.compared == []


def test_a_deadline_ends_it() -> None:
    async def scenario() -> None:
        llm = ComparingLLM(never, gate=asyncio.Event())
        with pytest.raises(DeadlineExceeded):
            await Comparer(Asker(llm)).compare(QUESTION, ["a1", "b2"], deadline_s=0.01)
        assert llm.active == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"Yes": math.log(0.6), "No": math.log(0.2)}, 0.75),
        ({"Yes": math.log(0.3), " yes": math.log(0.3), "\u0120NO": math.log(0.2)}, 0.75),
        ({"Yes": -0.01}, 1.0),
        ({'"No': -0.01, "Both": -5.0}, 0.0),
        ({"Yes": math.log(0.1), "The": math.log(0.9)}, None),
        ({"Nothing": -0.1}, None),
        ({}, None),
    ],
)
def test_the_probability_of_yes(tokens: dict[str, float], expected: float | None) -> None:
    assert probability_of_yes(tokens) == pytest.approx(expected)


def test_the_unrelated_sentence_as_an_answer_is_not_compared() -> None:
    same, _ = compared([UNRELATED, "Jupiter"], lambda first, second: float(first == second))
    assert np.isnan(same[0, 1])


def test_silent_pairs_are_asked_again() -> None:
    llm = ComparingLLM(lambda *_: None)
    comparer = Comparer(Asker(llm))

    async def scenario() -> float:
        silent = await comparer.compare(QUESTION, ["a1", "b2"])
        assert silent.replies == {}
        llm.same = lambda *_: 0.25
        return float((await comparer.compare(QUESTION, ["a1", "b2"], known=silent.replies)).same[0, 1])

    assert asyncio.run(scenario()) == pytest.approx(0.25)


def test_two_models_do_not_compare_the_answers_to_one_question() -> None:
    llm = ComparingLLM(never)

    def another_in_the_end(*_: str) -> float:
        llm.model = f"model {len(llm.compared)}"
        return 0.0

    llm.same = another_in_the_end
    with pytest.raises(LLMBadResponse):
        asyncio.run(Comparer(Asker(llm)).compare(QUESTION, ["a1", "b2"]))
