"""The port to an LLM: prompts, sampling, draws, identities. All adapters pass the same tests."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal, Protocol

Api = Literal["chat", "completions"]  # of OpenAI's
# Of a question's text, from its beginning, when it is embedded: more than most embedders read, and less than
# embedding servers refuse.
MAX_QUESTION_CHARS = 2000

# Blank to the eye, or in place of what could not be decoded, though Unicode has them as letters and signs.
_UNSEEN = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Mc", "Me"})
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\ufffd")


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: white space, zero-width and control characters, marks alone."""
    return all(one in _BLANK or unicodedata.category(one) in _UNSEEN for one in text)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn. `temperature` here is the LLM's; a calibration's is the spectrum's."""

    temperature: float = 0.5
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    seed: int | None = None


class Priority(IntEnum):
    """Who goes first, lower before higher; the numbers are vLLM's `priority`.

    LIVE: somebody waits for it. BESIDE: draws beside an answer, which goes out without them if need be. JOB:
    nobody waits.
    """

    LIVE = 0
    BESIDE = 1
    JOB = 10


@dataclass(frozen=True, slots=True)
class WirePrompt:
    """A prompt in the words of a call to an OpenAI-compatible server, to be sent as it is.

    `parts`: members of the JSON body. `marks`: what of them changes the answers beside plain turns of text
    (tools, a response format, images); they make a prompt shape of their own, none that of plain text.
    """

    api: Api
    parts: Mapping[str, Any]
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to be answered `num_samples` times.

    Exactly one of `prompt` (shaped by the adapter's settings), `messages` (sent as they are, after a system
    prompt of the settings) and `wire` (nothing is put around it) is set.
    `deadline_s` is the time left, from the call on; None: the adapter's own timeout.
    `priority`: who goes first where calls queue, here and in vLLM.
    """

    num_samples: int
    sampling: Sampling
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    wire: WirePrompt | None = None
    model: str | None = None
    deadline_s: float | None = None
    priority: Priority = Priority.LIVE

    @property
    def question(self) -> str | None:
        """Return the text of what is asked, as `question_text` has it."""
        if self.wire is None:
            return question_text(self.prompt, self.messages)
        prompt = self.wire.parts.get("prompt")
        turns = [turn for turn in self.wire.parts.get("messages") or () if isinstance(turn, Mapping)]
        asked = [
            Message("user", content_text(turn.get("content"))) for turn in turns if turn.get("role") == "user"
        ]
        return question_text(prompt if isinstance(prompt, str) else None, asked)

    def api(self, default: Api) -> Api:
        """Return the API that the request goes to: conversations go to chat, prompts to the default one."""
        if self.wire is not None:
            return self.wire.api
        return default if self.messages is None else "chat"


def question_text(prompt: str | None, messages: Sequence[Message] | None) -> str | None:
    """Return the beginning of the prompt, or of the user's last turn; None where there is no text."""
    asked = [turn.content for turn in messages or () if turn.role == "user"]
    text = (asked[-1] if asked else "") if prompt is None else prompt
    return text.strip()[:MAX_QUESTION_CHARS] or None


def content_text(content: object) -> str:
    """Return the text of a turn in OpenAI's API: whole, or of parts that are lines, as vLLM joins them."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Draw:
    """One answer, stripped and taken out by the answer regex, maybe empty; at first the raw output it is in.

    `truncated`: cut by max_tokens. `logprob`: mean log-probability per token in nats, where it is known.
    `total_logprob`: the log-probability of the whole answer in nats, the token that ended it included; None
    where it is not known, or where the answer is only a part of what was drawn. `num_tokens`: of all that was
    drawn, where known. `token_logprobs`: of each token, where /v1 is this LLM's only API.
    """

    text: str
    truncated: bool = False
    logprob: float | None = None
    total_logprob: float | None = None
    num_tokens: int | None = None
    token_logprobs: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the LLM server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """What came back: at least one draw; `requested - len(draws) - num_empty` are missing (failed, too late).

    `model`: the one that drew all of them, as it names itself; "" for answers that were supplied.
    `missing_reason`: "deadline" or "error" when draws are missing, else None.
    `queued_s`: how long the request waited for a slot before it went to the model.
    `omitted`: see `LLMIdentity`. `num_empty`: draws without text that were left out of `draws` as failed.
    """

    draws: tuple[Draw, ...]
    requested: int
    model: str
    usage: Usage = Usage()
    missing_reason: Literal["deadline", "error"] | None = None
    queued_s: float = 0.0
    omitted: tuple[str, ...] = ()
    num_empty: int = 0


@dataclass(frozen=True, slots=True)
class LLMIdentity:
    """What decides the distribution of the answers, other than the prompt and the sampling.

    `model`: as the server that answers names it, which may be another name than the one asked for.
    `prompt_shape` names or hashes everything put around the prompt; `answer_regex` is "" when none is set.
    `omitted`: sampling parameters that were not sent since the server refuses them; it uses its own values.
    `answered`: False while `model` is only the one asked for, since there was no answer yet.
    """

    model: str
    api: Api
    prompt_shape: str
    answer_regex: str = ""
    omitted: tuple[str, ...] = ()
    answered: bool = field(default=True, compare=False)

    def parts(self) -> dict[str, Any]:
        """Return what names the model and the text around a prompt."""
        parts = asdict(self)
        del parts["omitted"], parts["answered"]
        return parts

    def of(self, generation: Generation) -> "LLMIdentity":
        """Return the identity of these answers: they name the model that drew them, whatever was expected."""
        return replace(self, model=generation.model or self.model, omitted=generation.omitted)


def shape_hash(**parts: Any) -> str:
    """Return a short stable hash of the parts of a prompt shape (16 hex digits)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class LanguageModel(Protocol):
    """Draws answers. Cancelling the task that awaits `generate` frees the model."""

    async def start(self) -> None:
        """Acquire what is needed to serve. A server that is not up yet is no error here."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return what decides the distribution of answers to this request."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw `request.num_samples` answers; fewer (at least one) when some failed or the deadline struck.

        Raises LLMUnavailable, LLMError, LLMBadResponse, ModelNotFound, DeadlineExceeded, Overloaded.
        """

    async def check(self) -> None:
        """Return when the model can serve; raise LLMUnavailable when it cannot."""
