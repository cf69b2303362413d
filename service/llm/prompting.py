"""What is put around a prompt, and how the answer is taken out of the output. Shared by both LLM adapters."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import regex

from service.errors import LLMBadResponse
from service.llm.port import GenerationRequest, LLMIdentity, Message, shape_hash

PLAIN = "{prompt}"
QUESTION = "Q: {prompt}\nA:"

# Everyday questions with short answers: what a small base-like model needs to answer briefly. Each answer
# ends at a newline, so requests with this text should stop there.
FEW_SHOT = """\
Q: What colour is a ripe banana?
A: Yellow
Q: How many days are there in a week?
A: Seven
Q: What is the capital of Italy?
A: Rome
Q: Which animal says meow?
A: The cat
Q: Who wrote the play Hamlet?
A: William Shakespeare
Q: What do bees make?
A: Honey
"""

# The answer regex is searched in bounded time and beside the event loop: a pattern may backtrack for hours.
LONGEST_S = 1.0  # of the searches of one request; patterns that do not backtrack take microseconds
# Threads of their own: answers that take long hold up each other, and nothing else.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="answer-regex")

# With attributes or cut before its end; in brackets, as Mistral's models write it.
_THOUGHT = "think(?:ing)?|reasoning|thought"
_THOUGHT_BEGINS = re.compile(
    rf"\A[\s\u200b\u2060\ufeff]*(?:<(?:{_THOUGHT})(?:\s[^>]*)?(?:>|\Z)|\[THINK\])", re.IGNORECASE
)
_THOUGHT_ENDS = re.compile(rf"</(?:{_THOUGHT})\s*>|\[/THINK\]", re.IGNORECASE)
# As servers without a parser of tool calls leave them: with nothing beside, there is no answer.
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)


def strip_reasoning(text: str) -> str:
    """Return the text without leading blocks of thought; empty when one was never closed, or of calls alone.

    Some chat templates open the block inside the prompt, so a closing tag alone ends one too.
    """
    if end := _THOUGHT_ENDS.search(text):  # the first one: an answer may itself speak of the tag
        text = text[end.end() :]
    while _THOUGHT_BEGINS.match(text):
        end = _THOUGHT_ENDS.search(text)
        text = text[end.end() :] if end else ""
    return text if _CALL.sub("", text).strip() else ""


def whole_text(text: str) -> str:
    """Return text that can be written as UTF-8: halves of surrogate pairs are joined, or become U+FFFD.

    JSON can carry such halves, and servers that cut or stream a text between two tokens send them.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(frozen=True, slots=True)
class PromptShape:
    """The text around a prompt. `template` holds `{prompt}`; "" is `QUESTION` after few-shot text, else bare.

    Raises ValueError when the template lacks `{prompt}` or the regex does not compile.
    """

    system_prompt: str = ""
    few_shot: str = ""
    template: str = ""
    answer_regex: str = ""

    def __post_init__(self) -> None:
        if self.template and PLAIN not in self.template:
            raise ValueError("The prompt template must contain {prompt}.")
        check_regex(self.answer_regex)

    def question(self, prompt: str) -> str:
        """Return few-shot text and templated prompt: the user message of a chat."""
        few_shot = (
            self.few_shot if not self.few_shot or self.few_shot.endswith("\n") else self.few_shot + "\n"
        )
        return few_shot + self._template().replace(PLAIN, prompt)

    def text(self, prompt: str) -> str:
        """Return the whole prompt of a completion; the system prompt is a paragraph before it."""
        before = f"{self.system_prompt}\n\n" if self.system_prompt else ""
        return before + self.question(prompt)

    def conversation(self, request: GenerationRequest) -> list[dict[str, str]]:
        """Return the chat messages: those given, verbatim, or one made of the prompt.

        The system prompt comes first unless the conversation has a system message of its own.
        """
        if request.wire is not None:
            return [_plain_turn(turn) for turn in request.wire.parts["messages"]]
        turns = request.messages or (Message("user", self.question(request.prompt or "")),)
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        if self.system_prompt and not _has_system(turns):
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages

    def answer(self, output: str, longest_s: float = LONGEST_S) -> str:
        """Return the answer in the output: reasoning left out, stripped, passed through the answer regex.

        The regex takes its group 1, or the whole match when it has no group; no match is an empty answer.
        Raises LLMBadResponse when it takes longer than `longest_s`: see `answers`.
        """
        text = strip_reasoning(whole_text(output)).strip()
        if not self.answer_regex:
            return text
        return extract(self.answer_regex, text, longest_s=longest_s).strip()

    def is_whole(self, output: str) -> bool:
        """Tell whether the answer is all of the output, but for white space around it.

        Only then is the log-probability of what was drawn that of the answer.
        """
        return not self.answer_regex and strip_reasoning(output) == output

    async def answers(self, outputs: Sequence[str]) -> list[str]:
        """Return the answer in each output, the regex kept off the event loop.

        Raises LLMBadResponse when it takes longer than a second for all of them.
        """
        if not self.answer_regex:
            return [self.answer(output) for output in outputs]
        return await beside_the_loop(self.answer, outputs)

    def identity(self, request: GenerationRequest, *, model: str, api: str) -> LLMIdentity:
        """Return the identity of the answers to this request.

        A conversation has nothing around it but the system prompt: the shape of a bare prompt.
        """
        if request.wire is not None:
            shape = shape_hash(system_prompt="", few_shot="", template=PLAIN, **request.wire.marks)
        elif request.messages is None:
            shape = shape_hash(
                system_prompt=self.system_prompt, few_shot=self.few_shot, template=self._template()
            )
        else:
            system_prompt = "" if _has_system(request.messages) else self.system_prompt
            shape = shape_hash(system_prompt=system_prompt, few_shot="", template=PLAIN)
        return LLMIdentity(model, api_of(request, api), shape, self.answer_regex)

    def _template(self) -> str:
        return self.template or (QUESTION if self.few_shot else PLAIN)


def api_of(request: GenerationRequest, api: str) -> str:
    """Return the API that a request goes to: conversations always go to chat."""
    if request.wire is not None:
        return request.wire.api
    return api if request.messages is None else "chat"


def _plain_turn(turn: Mapping[str, Any]) -> dict[str, str]:
    """Return a turn whose content is a text: parts of text are lines, as vLLM joins them."""
    content = turn.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part["text"] for part in content if "text" in part)
    return {"role": turn["role"], "content": content}


def _has_system(messages: tuple[Message, ...]) -> bool:
    return any(message.role == "system" for message in messages)


def check_regex(pattern: str) -> None:
    """Raise ValueError when the pattern does not compile."""
    try:
        _compiled(pattern)
    except regex.error as error:
        raise ValueError(f"The answer regex does not compile: {error}") from None


def extract(pattern: str, text: str, *, longest_s: float = LONGEST_S) -> str:
    """Return group 1 of the first match, or the whole match when the pattern has no group; "" without one.

    Raises LLMBadResponse when the search takes longer than `longest_s`.
    """
    compiled = _compiled(pattern)
    try:
        match = compiled.search(text, timeout=longest_s)
    except TimeoutError:
        raise LLMBadResponse(
            f"EIGENCAL_ANSWER_REGEX took longer than {LONGEST_S:g} s in all, the last time on an answer of "
            f"{len(text)} characters: the pattern backtracks, rewrite it."
        ) from None
    return "" if match is None else match.group(1 if compiled.groups else 0) or ""


async def beside_the_loop(
    read: Callable[[str, float], str], outputs: Sequence[str], *, longest_s: float = LONGEST_S
) -> list[str]:
    """Return what `read` makes of each output and of the seconds left for it, read in a thread."""

    def all_of_them() -> list[str]:
        ends = time.monotonic() + longest_s
        return [read(output, max(ends - time.monotonic(), 0.001)) for output in outputs]

    return await asyncio.get_running_loop().run_in_executor(_THREADS, all_of_them)


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    return regex.compile(pattern, regex.VERSION0)  # as Python's own `re` reads it
