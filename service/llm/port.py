"""Requests to an LLM and their results: prompts and their formatting, sampling, draws and identities."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal

import regex

Api = Literal["chat", "completions"]  # of OpenAI
# Questions are cut to this length for embedding: more than most embedders read, less than servers refuse.
MAX_QUESTION_CHARS = 2000
GREEDY_BELOW = 1e-5  # below this temperature vLLM draws greedily and refuses n > 1

# The code points at the end are invisible, or the replacement character, but count as letters or signs.
_VISIBLE = regex.compile(r"[^\p{Cc}\p{Cf}\p{Z}\p{M}\u115f\u1160\u2800\u3164\uffa0\ufffd]")


def is_blank(text: str) -> bool:
    """Return True if all characters are invisible: white space, zero-width and control characters, marks."""
    return _VISIBLE.search(text) is None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of the LLM. A calibration's temperature, in contrast, is the spectrum's."""

    temperature: float = 0.5
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    seed: int | None = None


class Priority(IntEnum):
    """Priority of a call, lower numbers first.

    LIVE: a caller waits for it. BESIDE: samples that score a chat answer, which is sent without a score if
    need be. JOB: nobody waits.
    """

    LIVE = 0
    BESIDE = 1
    JOB = 10


@dataclass(frozen=True, slots=True)
class WirePrompt:
    """A chat or a completion in the format of an OpenAI-compatible server, sent unchanged.

    `parts`: members of the JSON body, with `messages` or `prompt`. `marks`: features other than plain text
    that change the answers (tools, a response format, images). A prompt with marks has a different prompt
    shape than plain text.
    """

    parts: Mapping[str, Any]
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to be answered `num_samples` times.

    Exactly one of `prompt` (formatted by the settings), `messages` (sent unchanged, after the
    settings' system prompt) and `wire` (sent unchanged) is set.
    `deadline_s`: time left from the call on, in seconds; None: the client's timeout.
    `priority`: order in the queue of calls.
    `fallback_max_tokens`: the token limit if the context has no room for that of `sampling`.
    `num_alternatives`: how many of the likeliest first tokens of each answer are asked for.
    `is_question`: a yes-or-no question (`service.llm.ask`), as part of a request that has been admitted.
    """

    num_samples: int
    sampling: Sampling
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    wire: WirePrompt | None = None
    model: str | None = None
    deadline_s: float | None = None
    priority: Priority = Priority.LIVE
    fallback_max_tokens: int | None = None
    num_alternatives: int = 0
    is_question: bool = False

    @property
    def question(self) -> str | None:
        """Return the text of the question; see `question_text`."""
        if self.wire is None:
            return question_text(self.prompt, self.messages)
        for turn in reversed(self.wire.parts.get("messages") or ()):
            if isinstance(turn, Mapping) and turn.get("role") == "user":
                return question_text(content_text(turn.get("content")), None)
        return None

    @property
    def whole_question(self) -> str:
        """Return the whole prompt, or all turns of the conversation; see `whole_question`."""
        if self.wire is None:
            return whole_question(self.prompt, [(turn.role, turn.content) for turn in self.messages or ()])
        turns = [turn for turn in self.wire.parts.get("messages") or () if isinstance(turn, Mapping)]
        return whole_question(
            None, [(str(turn.get("role")), content_text(turn.get("content"))) for turn in turns]
        )

    def api(self, default: Api) -> Api:
        """Return the API for the request: chat for conversations, `default` for prompts."""
        if self.wire is not None and "prompt" in self.wire.parts:
            return "completions"
        return "chat" if self.wire or self.messages else default


def question_text(prompt: str | None, messages: Sequence[Message] | None) -> str | None:
    """Return the beginning of the prompt, or of the user's last turn; None without text."""
    if prompt is None:
        prompt = next((turn.content for turn in reversed(messages or ()) if turn.role == "user"), "")
    return prompt.strip()[:MAX_QUESTION_CHARS] or None


def whole_question(prompt: str | None, turns: Sequence[tuple[str, str]]) -> str:
    """Return the whole prompt, or the turns of a conversation.

    turns: the role and the text of each. A single turn of the user is returned without its role.
    """
    if prompt is not None:
        return prompt.strip()
    spoken = [(role, text.strip()) for role, text in turns if text.strip()]
    if len(spoken) == 1 and spoken[0][0] == "user":
        return spoken[0][1]
    return "\n".join(f"{role.capitalize()}: {text}" for role, text in spoken)


def content_text(content: object) -> str:
    """Return the text of a turn in OpenAI's API. Parts are joined by newlines, as in vLLM."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Draw:
    """One sampled answer: at first the raw output, after `PromptShape.read` without reasoning, maybe empty.

    `truncated`: cut by max_tokens. `logprob`: mean log-probability per token in nats, if known.
    `total_logprob`: log-probability of the whole answer in nats, including the token that ended it; None if
    unknown, or if the answer is only a part of the output. `num_tokens`: of the whole output, if known.
    `logprobs_of_other_text`: log-probabilities were dropped because their tokens do not spell the text.
    `first_tokens`: the likeliest first tokens with their log-probabilities in nats, where asked for.
    """

    text: str
    truncated: bool = False
    logprob: float | None = None
    total_logprob: float | None = None
    num_tokens: int | None = None
    logprobs_of_other_text: bool = False
    first_tokens: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the LLM server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """The answers to a request.

    `model`: the model of all answers, as the server names it; "" for supplied answers.
    `queued_s`: how long the request waited for a slot, in seconds.
    `omitted`: see `LLMIdentity`. `num_empty`: answers without text, which are left out of `draws` as failed.
    `max_tokens`: the token limit if the request's fallback was used, else None.
    """

    draws: tuple[Draw, ...]
    model: str
    usage: Usage = Usage()
    queued_s: float = 0.0
    omitted: tuple[str, ...] = ()
    num_empty: int = 0
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LLMIdentity:
    """Everything that determines the distribution of the answers, apart from the prompt and the sampling.

    `model`: as the answering server names it, which may differ from the name requested.
    `prompt_shape`: hash of the text put around the prompt.
    `omitted`: sampling parameters that were not sent because the server refuses them; it uses its own values.
    `answered`: False while there was no answer yet, so that `model` is the name requested.
    """

    model: str
    api: Api
    prompt_shape: str
    omitted: tuple[str, ...] = ()
    answered: bool = field(default=True, compare=False)

    def parts(self) -> dict[str, Any]:
        """Return the fields that identify the model and the text around a prompt."""
        parts = asdict(self)
        del parts["omitted"], parts["answered"]
        return parts

    def of(self, generation: Generation) -> "LLMIdentity":
        """Return the identity of these answers, with the model and omitted parameters that they report."""
        return replace(self, model=generation.model or self.model, omitted=generation.omitted)


def shape_hash(**parts: Any) -> str:
    """Return a short stable hash of the parts of a prompt shape (16 hex digits)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


PLAIN = "{prompt}"

_THOUGHT = r"\w*[:_]?think(?:ing)?|reasoning|thoughts?"
# Begin and end marks of reasoning, by model.
_MARKS = (
    # With attributes, or cut before the end of the mark.
    (rf"<(?:{_THOUGHT})(?:\s[^>]*)?(?:>|\Z)", rf"</(?:{_THOUGHT})\s*>"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|channel>thought|<unused94>thought", r"<channel\|>|<unused95>"),  # Gemma
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|thinking\|>", r"<\|/thinking\|>"),
    # The harmony format of gpt-oss.
    (r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final.*?<\|message\|>"),
)
_THOUGHT_BEGINS, _THOUGHT_ENDS = (
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\A[\s\u200b\u2060\ufeff]*(?:{'|'.join(begin for begin, _ in _MARKS)})",
        "|".join(end for _, end in _MARKS),
    )
)
# Marks around the answer after the reasoning.
_AROUND = re.compile(
    r"\A\s*<\|(?:START_(?:RESPONSE|TEXT)|begin_of_solution)\|>"
    r"|<\|(?:END_RESPONSE|END_TEXT|end_of_solution|return|end)\|>\s*\Z"
)
# Tool calls in the text, from servers that do not parse them. A text of only tool calls is not an answer.
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)


def strip_reasoning(text: str) -> str:
    """Return the text without leading reasoning; "" if a block is not closed, or only tool calls remain.

    Some chat templates open the block in the prompt, so a closing tag without an opening one also ends it.
    """
    if end := _THOUGHT_ENDS.search(text):  # the first one: an answer may itself speak of the tag
        text = text[end.end() :]
    while _THOUGHT_BEGINS.match(text):
        end = _THOUGHT_ENDS.search(text)
        text = text[end.end() :] if end else ""
    text = _AROUND.sub("", text)
    return text if _CALL.sub("", text).strip() else ""


@dataclass(frozen=True, slots=True)
class PromptShape:
    """The text around a prompt. Raises ValueError for a template without `{prompt}`."""

    system_prompt: str = ""
    template: str = PLAIN

    def __post_init__(self) -> None:
        if PLAIN not in self.template:
            raise ValueError("The prompt template must contain {prompt}.")

    def question(self, prompt: str) -> str:
        """Return the prompt in its template: the user message of a chat."""
        return self.template.replace(PLAIN, prompt)

    def text(self, request: GenerationRequest) -> str:
        """Return the whole prompt of a completion, with the system prompt as its first paragraph."""
        before = f"{self.system_prompt}\n\n" if self.system_prompt else ""
        return before + self.question(request.prompt or "")

    def conversation(self, request: GenerationRequest) -> list[dict[str, str]]:
        """Return the chat messages: the request's, or one with the prompt, after the system prompt."""
        if request.wire is not None:
            turns = request.wire.parts["messages"]
            return [{"role": turn["role"], "content": content_text(turn.get("content"))} for turn in turns]
        messages = request.messages or (Message("user", self.question(request.prompt or "")),)
        if self.system_prompt and not _has_system(messages):
            messages = (Message("system", self.system_prompt), *messages)
        return [{"role": message.role, "content": message.content} for message in messages]

    def read(self, outputs: Sequence[Draw]) -> tuple[Draw, ...]:
        """Return the answers in raw outputs, without reasoning and surrounding white space."""
        return tuple(map(_answer, outputs))

    def identity(self, request: GenerationRequest, *, model: str, api: Api) -> LLMIdentity:
        """Return the identity of the answers to this request.

        A conversation has the shape of a bare prompt, since only the system prompt is put around it.
        """
        if request.wire is not None:
            shape = shape_hash(system_prompt="", template=PLAIN, **request.wire.marks)
        elif request.messages is None:
            shape = shape_hash(system_prompt=self.system_prompt, template=self.template)
        else:
            system_prompt = "" if _has_system(request.messages) else self.system_prompt
            shape = shape_hash(system_prompt=system_prompt, template=PLAIN)
        return LLMIdentity(model, request.api(api), shape)


def _answer(output: Draw) -> Draw:
    # Servers that cut a text between two tokens may send half a surrogate pair.
    text = output.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = strip_reasoning(text)
    # The log-probability of the output belongs to the answer only if the answer is the whole output.
    total = output.total_logprob if text == output.text else None
    text = text.strip()
    is_as_drawn = text == output.text and total == output.total_logprob
    return output if is_as_drawn else replace(output, text=text, total_logprob=total)


def _has_system(messages: Sequence[Message]) -> bool:
    return any(message.role == "system" for message in messages)
