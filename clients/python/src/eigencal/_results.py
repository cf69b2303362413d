"""Results beyond the contract's schemas: the types of OpenAI's API, and conveniences."""

from typing import Annotated

from pydantic import Field

from eigencal import types
from eigencal._exceptions import error_of_problem
from eigencal._result import Result
from eigencal.types import KeptScore, Problem, Score


class BatchItem(Result):
    """The outcome of one item of a batch. Exactly one of `result` and `error` is set."""

    index: Annotated[int, Field(strict=True, ge=0)]
    """Position of the item among all items passed to `score_batch`, from 0."""
    result: Score | None = None
    """The score."""
    error: Problem | None = None
    """Why there is no score. `error.retryable`: whether a later try may succeed."""

    @property
    def ok(self) -> bool:
        """Whether the item was scored."""
        return self.result is not None

    def unwrap(self) -> Score:
        """Return the score. Raises the `APIStatusError` that `Client.score` would raise if there is none."""
        if self.result is None:
            problem = self.error.model_dump(mode="json") if self.error else {}
            raise error_of_problem(problem.get("status", 200), problem)
        return self.result


class Job(types.Job):
    """A calibration job."""

    @property
    def finished(self) -> bool:
        """Whether the job has ended, successfully or not."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def succeeded(self) -> bool:
        """Whether the job has ended successfully."""
        return self.state == "succeeded"


class NewKey(types.NewKey):
    """A new key: the only result with the key itself, which `repr` omits."""

    key: str = Field(repr=False)
    """The key. The service does not store it and never shows it again."""


class Message(Result):
    """A message of the model or, in a stream, a chunk of it. Tool calls and others are extra fields."""

    role: str | None = None
    """Role of the speaker; in a stream, only in the first chunk."""
    content: str | None = None
    """The text; None without text, for example with tool calls."""


class Choice(Result):
    """One of the answers to a chat."""

    index: int = 0
    """Position of the answer."""
    message: Message
    """The answer."""
    finish_reason: str | None = None
    """Why the answer ended: `stop`, `length`, `tool_calls` ..."""


class _Answer(Result):
    id: str | None = None
    """Id of the answer. The id of the score is `uncertainty.id`."""
    model: str | None = None
    """Model that answered."""
    uncertainty: KeptScore | None = None
    """Score of the first answer; None if scoring is off. In a stream, the last chunk has it."""


class ChatCompletion(_Answer):
    """A chat completion. The LLM server may add further fields."""

    choices: tuple[Choice, ...] = ()
    """The answers; the first one is scored."""

    @property
    def content(self) -> str | None:
        """Text of the first answer; None if it has none."""
        return self.choices[0].message.content if self.choices else None


class ChunkChoice(Result):
    """A chunk of one of the answers."""

    index: int = 0
    """Position of the answer."""
    delta: Message = Message()
    """The new part of the answer."""
    finish_reason: str | None = None
    """Why the answer ended; None before the end."""


class ChatChunk(_Answer):
    """A chunk of a streamed chat completion. The LLM server may add further fields."""

    choices: tuple[ChunkChoice, ...] = ()
    """The new part of each answer."""

    @property
    def content(self) -> str:
        """New text of the first answer, or an empty string."""
        return (self.choices[0].delta.content if self.choices else None) or ""


class Model(Result):
    """A model of the LLM server, which may add further fields."""

    id: str
    """Name of the model, as in the field `model` of a request."""
