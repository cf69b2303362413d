"""Prompts of an LLM: the text put around them, the sampling, and what identifies both."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal, cast

from service.llm.samples import Generation

Api = Literal["chat", "completions"]  # of OpenAI
Role = Literal["system", "user", "assistant"]
# Questions are cut to this length for embedding: more than most embedders read, less than servers refuse.
MAX_QUESTION_CHARS = 2000
GREEDY_BELOW = 1e-5  # below this temperature vLLM draws greedily and refuses n > 1
PLAIN = "{prompt}"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
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
class Prompt:
    """A question to an LLM, in the form in which it is sent.

    `members`: those of a call's JSON body that determine the answers, with `messages` or `prompt`. `shape`:
    hash of the text around the question, and of tools, images and other features that change the answers.
    `question`: see `question_text`. `whole_question`: see the function of this name.
    """

    api: Api
    members: Mapping[str, Any] = field(repr=False)
    shape: str = ""
    question: str | None = None
    whole_question: str = ""


UNKNOWN = Prompt("chat", {})


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to be answered `num_samples` times.

    `deadline_s`: time left from the call on, in seconds; None: the client's timeout.
    `priority`: order in the queue of calls.
    `fallback_max_tokens`: the token limit if the context has no room for that of `sampling`.
    `num_alternatives`: how many of the likeliest first tokens of each answer are asked for.
    `is_question`: a yes-or-no question (`service.llm.ask`), as part of a request that has been admitted.
    """

    num_samples: int
    sampling: Sampling
    prompt: Prompt
    model: str | None = None
    deadline_s: float | None = None
    priority: Priority = Priority.LIVE
    fallback_max_tokens: int | None = None
    num_alternatives: int = 0
    is_question: bool = False


def question_text(prompt: str | None, messages: Sequence[Message] | None) -> str | None:
    """Return the beginning of the prompt, or of the user's last turn; None without text."""
    if prompt is None:
        prompt = next((turn.content for turn in reversed(messages or ()) if turn.role == "user"), "")
    return prompt.strip()[:MAX_QUESTION_CHARS] or None


def whole_question(prompt: str | None, messages: Sequence[Message] | None) -> str:
    """Return the whole prompt, or the turns of a conversation, each with its role.

    A single turn of the user is returned without its role.
    """
    if prompt is not None:
        return prompt.strip()
    spoken = [(turn.role, text) for turn in messages or () if (text := turn.content.strip())]
    if len(spoken) == 1 and spoken[0][0] == "user":
        return spoken[0][1]
    return "\n".join(f"{role.capitalize()}: {text}" for role, text in spoken)


def as_sent(members: Mapping[str, Any], marks: Mapping[str, Any]) -> Prompt:
    """Return the prompt of a caller's chat, which is sent unchanged.

    marks: features other than plain text that change the answers (tools, a response format, images).
    """
    messages = [
        Message(cast("Role", str(turn.get("role"))), content_text(turn.get("content")))
        for turn in members["messages"]
    ]
    further = {"marks": marks} if marks else {}
    shape = shape_hash(system_prompt="", template=PLAIN, **further)
    return Prompt("chat", members, shape, question_text(None, messages), whole_question(None, messages))


def content_text(content: object) -> str:
    """Return the text of a turn in OpenAI's API. Parts are joined by newlines, as in vLLM."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class LLMIdentity:
    """Everything that determines the distribution of the answers, apart from the prompt and the sampling.

    `model`: as the answering server names it, which may differ from the name requested.
    `prompt_shape`: `Prompt.shape`.
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


@dataclass(frozen=True, slots=True)
class Template:
    """The text around a prompt, and the API for prompts. Raises ValueError for a text without `{prompt}`."""

    system_prompt: str = ""
    text: str = PLAIN
    api: Api = "chat"

    def __post_init__(self) -> None:
        if PLAIN not in self.text:
            raise ValueError("The prompt template must contain {prompt}.")

    def prompt(self, text: str | None, messages: Sequence[Message] | None = None) -> Prompt:
        """Return the prompt of a text or, if it is None, of a conversation.

        Only the system prompt is put around a conversation, unless it has its own. A chat has the system
        prompt as its first turn, a completion as its first paragraph.
        """
        turns, template = tuple(messages or ()), PLAIN
        system_prompt = "" if any(turn.role == "system" for turn in turns) else self.system_prompt
        api: Api = "chat"
        if text is not None:
            turns, template, api = (Message("user", self.text.replace(PLAIN, text)),), self.text, self.api
        members: dict[str, Any]
        if api == "completions":
            members = {"prompt": "\n\n".join(filter(None, [system_prompt, turns[0].content]))}
        else:
            around = (Message("system", system_prompt),) if system_prompt else ()
            members = {"messages": [asdict(turn) for turn in (*around, *turns)]}
        shape = shape_hash(system_prompt=system_prompt, template=template)
        return Prompt(api, members, shape, question_text(text, messages), whole_question(text, messages))
