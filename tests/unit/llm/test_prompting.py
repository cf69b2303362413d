"""The shape of prompts, and the extraction of answers."""

import pytest

from service.llm.prompt import Message, Prompt, Template, as_sent
from service.llm.samples import answer_in

USER = {"role": "user", "content": "Why?"}
SYSTEM = {"role": "system", "content": "Be brief."}
BRIEF = Template("Be brief.")
WHY = [Message("user", "Why?")]


def test_template_may_contain_examples_and_keeps_braces() -> None:
    examples = Template(text="Q: One?\nA: 1\nQ: {prompt}\nA:").prompt("Why?")
    assert examples.members["messages"][0]["content"] == "Q: One?\nA: 1\nQ: Why?\nA:"
    assert examples.question == examples.whole_question == "Why?"
    in_json = Template(text='{"ask": "{prompt}"}', api="completions")
    assert in_json.prompt("{x} {0}").members == {"prompt": '{"ask": "{x} {0}"}'}


def test_system_prompt_is_first_and_never_duplicated() -> None:
    assert BRIEF.prompt("Why?").members == BRIEF.prompt(None, WHY).members == {"messages": [SYSTEM, USER]}
    own = BRIEF.prompt(None, [Message("system", "Be long."), *WHY])
    assert own.members == {"messages": [{"role": "system", "content": "Be long."}, USER]}
    completion = Template("Be brief.", api="completions")
    assert completion.prompt("Why?").members == {"prompt": "Be brief.\n\nWhy?"}
    assert completion.prompt(None, WHY).members == {"messages": [SYSTEM, USER]}


def test_bare_prompt_and_conversation_have_one_shape() -> None:
    assert Template().prompt("Why?").shape == Template().prompt(None, WHY).shape
    assert BRIEF.prompt("Why?").shape == BRIEF.prompt(None, WHY).shape != Template().prompt("Why?").shape
    examples, plain = Template(text="Q: {prompt}"), Template().prompt("Why?").shape
    assert examples.prompt(None, WHY).shape == plain != examples.prompt("Why?").shape


CHAT = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Which?"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None},
    ]
}


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        (Template().prompt(" Which? "), "Which?"),
        (Template().prompt("x" * 5000), "x" * 2000),
        (
            Template().prompt(
                None, [Message("user", "First?"), Message("user", "Last?"), Message("assistant", "So")]
            ),
            "Last?",
        ),
        (Template().prompt(None, [Message("system", "Be brief.")]), None),
        (as_sent(CHAT, {}), "Which?"),
    ],
)
def test_question_is_the_prompt_or_the_last_user_turn(prompt: Prompt, question: str | None) -> None:
    assert prompt.question == question


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (" Paris \n", "Paris"),
        ("<think>\nlong\n</think>\n\nParis", "Paris"),
        ("it must be </think> Paris", "Paris"),
        ("<think>a</think> The tag </think> ends it", "The tag </think> ends it"),
        ("<think>cut off", ""),
        ("<thinking>long</thinking >\nParis", "Paris"),
        ('<think type="long">long</think>Paris', "Paris"),
        ("<think>a</think>\n<think>b</think> Paris", "Paris"),
        ("[THINK]long[/THINK]Paris", "Paris"),
        ("<seed:think>long</seed:think>Paris", "Paris"),
        ("long</seed:think>Paris", "Paris"),
        ("◁think▷long◁/think▷Paris", "Paris"),
        ("<|START_THINKING|>long<|END_THINKING|><|START_RESPONSE|>Paris<|END_RESPONSE|>", "Paris"),
        ("<longcat_think>long</longcat_think>Paris", "Paris"),
        ("<unused94>thought\nlong<unused95>Paris", "Paris"),
        (
            "<|begin_of_thought|>long<|end_of_thought|><|begin_of_solution|>Paris<|end_of_solution|>",
            "Paris",
        ),
        (
            "<report><analysis>long</analysis>Paris</report>",
            "<report><analysis>long</analysis>Paris</report>",
        ),
        ("<|channel>thought\nlong<channel|>\nParis", "Paris"),
        ("<|channel>thought\ncut off", ""),
        (
            "<|channel|>analysis<|message|>long<|end|><|start|>assistant<|channel|>final<|message|>Paris<|return|>",
            "Paris",
        ),
        ("<|channel|>analysis<|message|>cut off", ""),
        ("<|channel|>final<|message|>Paris", "Paris"),
        ('<think>a</think>\n<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"na', ""),
        ("See <tool_call>{}</tool_call>", "See <tool_call>{}</tool_call>"),
        ("<THINK>long</Think>Paris", "Paris"),
        ("\u200b<think>cut off", ""),
        ("<thinker> is a statue", "<thinker> is a statue"),
        ("Paris <think>", "Paris <think>"),
        ("", ""),
    ],
)
def test_answer_is_stripped_and_free_of_reasoning(output: str, answer: str) -> None:
    assert answer_in(output).strip() == answer


def test_template_without_a_place_for_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="template"):
        Template(text="no place")
