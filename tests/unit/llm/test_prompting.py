"""The shape of prompts, and the extraction of answers."""

from typing import Any

import pytest

from service.llm.prompt import GenerationRequest, Message, PromptShape, Sampling
from service.llm.samples import Draw

USER = {"role": "user", "content": "Why?"}


def prompt(text: str) -> GenerationRequest:
    return GenerationRequest(2, Sampling(), prompt=text)


def talk(*turns: Message) -> GenerationRequest:
    return GenerationRequest(2, Sampling(), messages=turns)


def shape_of(shape: PromptShape, request: GenerationRequest, api: str = "chat") -> str:
    return shape.identity(request, model="m", api=api).prompt_shape


def sent(shape: PromptShape, request: GenerationRequest) -> Any:
    """Return the messages of a chat."""
    return shape.members(request, "chat")["messages"]


def test_template_may_contain_examples_and_keeps_braces() -> None:
    examples = PromptShape(template="Q: One?\nA: 1\nQ: {prompt}\nA:")
    assert sent(examples, prompt("Why?"))[0]["content"] == "Q: One?\nA: 1\nQ: Why?\nA:"
    in_json = PromptShape(template='{"ask": "{prompt}"}')
    assert in_json.members(prompt("{x} {0}"), "completions") == {"prompt": '{"ask": "{x} {0}"}'}


def test_system_prompt_is_first_and_never_duplicated() -> None:
    shape = PromptShape(system_prompt="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert sent(shape, prompt("Why?")) == [system, USER]
    assert sent(shape, talk(Message("user", "Why?"))) == [system, USER]
    own = sent(shape, talk(Message("system", "Be long."), Message("user", "Why?")))
    assert own == [{"role": "system", "content": "Be long."}, USER]
    assert shape.members(prompt("Why?"), "completions") == {"prompt": "Be brief.\n\nWhy?"}


def test_bare_prompt_and_conversation_have_one_shape() -> None:
    assert shape_of(PromptShape(), prompt("Why?")) == shape_of(PromptShape(), talk(Message("user", "Why?")))
    system = PromptShape(system_prompt="Be brief.")
    assert shape_of(system, prompt("Why?")) == shape_of(system, talk(Message("user", "Why?")))
    assert shape_of(system, prompt("Why?")) != shape_of(PromptShape(), prompt("Why?"))


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
    assert Draw(output).answer().text == answer


def test_template_without_a_place_for_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="template"):
        PromptShape(template="no place")
