"""Answers of the drop-in: as OpenAI's API shapes them, with `uncertainty` beside them."""

from eigencal._models.kept import KeptScore
from eigencal._models.result import Result


class Message(Result):
    """What the model says, whole or (in a stream) a piece of it. Tool calls and others are further fields."""

    role: str | None = None
    """Who speaks; in a stream, told once."""
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


class ChatCompletion(Result):
    """An answer to a chat. The further fields are those of the LLM server."""

    id: str | None = None
    """Id of the answer; that of the score is `uncertainty.id`."""
    model: str | None = None
    """Model that answered."""
    choices: tuple[Choice, ...] = ()
    """The answers; the first one is judged."""
    uncertainty: KeptScore | None = None
    """How uncertain the first answer is; None where scoring is off."""

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


class ChatChunk(Result):
    """A piece of a streamed answer. The further fields are those of the LLM server."""

    id: str | None = None
    """Id of the answer."""
    model: str | None = None
    """Model that answers."""
    choices: tuple[ChunkChoice, ...] = ()
    """What is new in each answer."""
    uncertainty: KeptScore | None = None
    """How uncertain the first answer is: on the piece that finishes it, else None."""

    @property
    def content(self) -> str:
        """The text that is new in the first answer; empty where there is none."""
        return (self.choices[0].delta.content if self.choices else None) or ""


class TextChoice(Result):
    """One of the texts that complete a prompt."""

    index: int = 0
    """Which of the texts."""
    text: str
    """The text."""
    finish_reason: str | None = None
    """Why it ended: `stop`, `length` ..."""


class TextCompletion(Result):
    """A completed text. The further fields are those of the LLM server."""

    id: str | None = None
    """Id of the answer; that of the score is `uncertainty.id`."""
    model: str | None = None
    """Model that answered."""
    choices: tuple[TextChoice, ...] = ()
    """The texts; the first one is judged."""
    uncertainty: KeptScore | None = None
    """How uncertain the first text is; None where scoring is off."""


class Model(Result):
    """A model that the LLM server serves. The further fields are the server's."""

    id: str
    """Its name, as `model` of a request."""
