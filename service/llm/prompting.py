"""What is put around a prompt, and how the answer is taken out of the output. Shared by both LLM adapters."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import regex

from service.errors import LLMBadResponse
from service.llm.port import Api, Draw, GenerationRequest, LLMIdentity, Message, content_text, shape_hash

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

# Of a request's searches by the answer regex: patterns that backtrack take hours, others microseconds.
MAX_SEARCH_S = 1.0

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


@dataclass(frozen=True, slots=True)
class PromptShape:
    """The text around a prompt. `template` holds `{prompt}`; "" is `QUESTION` after few-shot text, else bare.

    Raises ValueError for a template without `{prompt}`, or a regex that does not compile.
    """

    system_prompt: str = ""
    few_shot: str = ""
    template: str = ""
    answer_regex: str = ""

    def __post_init__(self) -> None:
        if self.template and PLAIN not in self.template:
            raise ValueError("The prompt template must contain {prompt}.")
        try:
            self._pattern()
        except regex.error as error:
            raise ValueError(f"The answer regex does not compile: {error}") from None

    def question(self, prompt: str) -> str:
        """Return few-shot text and templated prompt: the user message of a chat."""
        few_shot = self.few_shot
        if few_shot and not few_shot.endswith("\n"):
            few_shot += "\n"
        return few_shot + self._template().replace(PLAIN, prompt)

    def text(self, request: GenerationRequest) -> str:
        """Return the whole prompt of a completion; the system prompt is a paragraph before it."""
        if request.wire is not None:
            return str(request.wire.parts["prompt"])
        before = f"{self.system_prompt}\n\n" if self.system_prompt else ""
        return before + self.question(request.prompt or "")

    def conversation(self, request: GenerationRequest) -> list[dict[str, str]]:
        """Return the chat messages: those given, or one of the prompt; and the system prompt."""
        if request.wire is not None:
            turns = request.wire.parts["messages"]
            return [{"role": turn["role"], "content": content_text(turn.get("content"))} for turn in turns]
        messages = request.messages or (Message("user", self.question(request.prompt or "")),)
        if self.system_prompt and not _has_system(messages):
            messages = (Message("system", self.system_prompt), *messages)
        return [{"role": message.role, "content": message.content} for message in messages]

    def read(self, outputs: Sequence[Draw]) -> tuple[Draw, ...]:
        """Return draws whose texts are the answers in raw outputs.

        Reasoning is left out, and white space around; the answer regex takes its group 1, or the whole match
        when it has no group, and no match is an empty answer. Raises LLMBadResponse when its searches take
        longer than `MAX_SEARCH_S`.
        """
        ends = time.monotonic() + MAX_SEARCH_S
        return tuple(self._answer(output, max(ends - time.monotonic(), 0.001)) for output in outputs)

    async def read_beside_loop(self, outputs: Sequence[Draw]) -> tuple[Draw, ...]:
        """Return what `read` does; a regex is searched in a thread."""
        if self.answer_regex:
            return await asyncio.to_thread(self.read, outputs)
        return self.read(outputs)

    def identity(self, request: GenerationRequest, *, model: str, api: Api) -> LLMIdentity:
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
        return LLMIdentity(model, request.api(api), shape, self.answer_regex)

    def _template(self) -> str:
        return self.template or (QUESTION if self.few_shot else PLAIN)

    def _pattern(self) -> "regex.Pattern[str]":
        return regex.compile(self.answer_regex, regex.VERSION0)  # as Python's own `re` reads it

    def _answer(self, output: Draw, search_s: float) -> Draw:
        # JSON can carry halves of surrogate pairs, and servers that cut a text between two tokens send them.
        text = output.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = strip_reasoning(text)
        # The log-probability of what was drawn is that of the answer only if the answer is all of it.
        total = output.total_logprob if text == output.text and not self.answer_regex else None
        text = text.strip()
        if self.answer_regex:
            text = self._search(text, search_s).strip()
        return replace(output, text=text, total_logprob=total)

    def _search(self, text: str, search_s: float) -> str:
        pattern = self._pattern()
        try:
            match = pattern.search(text, timeout=search_s)
        except TimeoutError:
            raise LLMBadResponse(
                f"EIGENCAL_ANSWER_REGEX took longer than {MAX_SEARCH_S:g} s in all, the last time on an "
                f"answer of {len(text)} characters: the pattern backtracks, rewrite it."
            ) from None
        return "" if match is None else match.group(1 if pattern.groups else 0) or ""


def _has_system(messages: Sequence[Message]) -> bool:
    return any(message.role == "system" for message in messages)
