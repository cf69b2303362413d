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
        return question_text(self.prompt, self._turns())

    @property
    def whole_question(self) -> str:
        """Return the whole prompt, or all turns of the conversation; see `whole_question`."""
        return whole_question(self.prompt, [(str(turn.role), turn.content) for turn in self._turns()])

    def api(self, default: Api) -> Api:
        """Return the API for the request: chat for conversations, `default` for prompts."""
        if self.wire is not None and "prompt" in self.wire.parts:
            return "completions"
        return "chat" if self.wire or self.messages else default

    def _turns(self) -> Sequence[Message]:
        if self.wire is None:
            return self.messages or ()
        turns = [turn for turn in self.wire.parts.get("messages") or () if isinstance(turn, Mapping)]
        return [Message(cast("Role", turn.get("role")), content_text(turn.get("content"))) for turn in turns]


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


@dataclass(frozen=True, slots=True)
class PromptShape:
    """The text around a prompt. Raises ValueError for a template without `{prompt}`."""

    system_prompt: str = ""
    template: str = PLAIN

    def __post_init__(self) -> None:
        if PLAIN not in self.template:
            raise ValueError("The prompt template must contain {prompt}.")

    def members(self, request: GenerationRequest, api: Api) -> dict[str, Any]:
        """Return the members of a call's JSON body that contain the prompt.

        A chat has the system prompt as its first turn, a completion as its first paragraph.
        """
        if request.wire is not None:
            return dict(request.wire.parts)
        prompt = self.template.replace(PLAIN, request.prompt or "")
        system_prompt = self._system_prompt(request)
        if request.api(api) == "completions":
            return {"prompt": f"{system_prompt}\n\n{prompt}" if system_prompt else prompt}
        turns = request.messages or (Message("user", prompt),)
        if system_prompt:
            turns = (Message("system", system_prompt), *turns)
        return {"messages": [{"role": turn.role, "content": turn.content} for turn in turns]}

    def identity(self, request: GenerationRequest, *, model: str, api: Api) -> LLMIdentity:
        """Return the identity of the answers to this request.

        A conversation has the shape of a bare prompt, since only the system prompt is put around it.
        """
        template = self.template if request.wire is None and request.messages is None else PLAIN
        marks = {} if request.wire is None else request.wire.marks
        shape = shape_hash(system_prompt=self._system_prompt(request), template=template, **marks)
        return LLMIdentity(model, request.api(api), shape)

    def _system_prompt(self, request: GenerationRequest) -> str:
        has_own = any(turn.role == "system" for turn in request.messages or ())
        return "" if has_own or request.wire is not None else self.system_prompt
