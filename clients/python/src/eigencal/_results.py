"""Results that are more than the contract's schemas: what OpenAI's API shapes, and a few conveniences."""

from typing import Annotated

from pydantic import Field

from eigencal import types
from eigencal._exceptions import error_of_problem
from eigencal._result import Result
from eigencal.types import KeptScore, Problem, Score


class BatchItem(Result):
    """What became of one item of a batch: a score, or why there is none. Exactly one of the two is set."""

    index: Annotated[int, Field(strict=True, ge=0)]
    """Which item, from 0, counted over everything that was handed to `score_batch`."""
    result: Score | None = None
    """Its score."""
    error: Problem | None = None
    """Why it has none; `error.retryable` says whether it may have one later."""

    @property
    def ok(self) -> bool:
        """Whether it was scored."""
        return self.result is not None

    def unwrap(self) -> Score:
        """Return the score. Raises an `APIStatusError` where there is none, as `Client.score` would."""
        if self.result is None:
            problem = self.error.model_dump(mode="json") if self.error else {}
            raise error_of_problem(problem.get("status", 200), problem)
        return self.result


class Job(types.Job):
    """A job."""

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.state == "succeeded"


class NewKey(types.NewKey):
    """A key that was made now: the only result that holds the key itself. `repr` leaves it out."""

    # Logs and tracebacks show reprs.
    key: str = Field(repr=False)
    """The key. It is shown this once and stored nowhere."""


class Message(Result):
    """What the model says, whole or (in a stream) a piece of it. Tool calls and others are further fields."""

    role: str | None = None
    """Who speaks; in a stream, only in the first piece."""
    content: str | None = None
    """The text; None where there is none, as beside tool calls."""


class Choice(Result):
    """One of the answers to a chat."""

    index: int = 0
    """Which of the answers."""
    message: Message
    """The answer."""
    finish_reason: str | None = None
    """Why it ended: `stop`, `length`, `tool_calls` ..."""


class _Answer(Result):
    id: str | None = None
    """Id of the answer; that of the score is `uncertainty.id`."""
    model: str | None = None
    """Model that answered."""
    uncertainty: KeptScore | None = None
    """How uncertain the first answer is; None where scoring is off; of a stream, on the last piece."""


class ChatCompletion(_Answer):
    """An answer to a chat. The further fields are those of the LLM server."""

    choices: tuple[Choice, ...] = ()
    """The answers; the first one is judged."""

    @property
    def content(self) -> str | None:
        """The text of the first answer; None where it has none."""
        return self.choices[0].message.content if self.choices else None


class ChunkChoice(Result):
    """A piece of one of the answers."""

    index: int = 0
    """Which of the answers."""
    delta: Message = Message()
    """What is added to it."""
    finish_reason: str | None = None
    """Why it ended; None while it goes on."""


class ChatChunk(_Answer):
    """A piece of a streamed answer. The further fields are those of the LLM server."""

    choices: tuple[ChunkChoice, ...] = ()
    """What is new in each answer."""

    @property
    def content(self) -> str:
        """The text that is new in the first answer; empty where there is none."""
        return (self.choices[0].delta.content if self.choices else None) or ""


class Model(Result):
    """A model that the LLM server serves. The further fields are the server's."""

    id: str
    """Its name, as `model` of a request."""
