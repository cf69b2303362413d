"""What a row of dev data may hold, said once: for files, for JSON bodies and for the contract."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

# Recorded beside the answers, one number for each: the command `evaluate` reads them, a calibration does not.
IGNORED_FIELDS = ("logprob", "tokens")
MIN_SAMPLES, MAX_SAMPLES = 2, 256
MAX_REFERENCES = 64
MAX_MESSAGES = 1024
MAX_ID_CHARS = 200
ROLES = ("system", "user", "assistant")

# A character other than white space. The classes of Python (str.strip), Rust (pydantic) and JavaScript (the
# contract's readers) differ in five characters, which are therefore named.
NOT_BLANK = r"[^\s\x1c-\x1f\x85]|\ufeff"


def _whole(value: object) -> object:
    """Return 14 for 14.0: JSON Schema counts both as integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# pydantic looks for lone surrogates, which no UTF-8 can hold, only where a string has a bound.
Text = Annotated[str, Field(min_length=0)]
FilledText = Annotated[str, Field(pattern=NOT_BLANK)]
Name = Annotated[str, Field(pattern=NOT_BLANK, max_length=MAX_ID_CHARS)]
WholeNumber = Annotated[int, Field(ge=-(2**63), lt=2**63), BeforeValidator(_whole)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def has_no_more_than_its_fields(cls, value: object) -> object:
        """Refuse a great many unknown fields as one: pydantic would make an error of each."""
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            raise PydanticCustomError("too_many_fields", "has fields that are not known")
        return value


class ExampleMessage(_Strict):
    """One turn of a row's conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: Text = Field(description="What is said.")


def _with(name: str, kind: str) -> dict[str, Any]:
    """Return the schema of an object that has this field, and not as null."""
    return {
        "title": f"with {name}",
        "type": "object",
        "required": [name],
        "properties": {name: {"type": kind}},
    }


def _row_schema(schema: dict[str, Any]) -> None:
    """Say that a row is asked one way; leave out defaults, which would tell clients to send nulls."""
    schema["oneOf"] = [_with("prompt", "string"), _with("messages", "array")]
    for field in schema["properties"].values():
        field.pop("default", None)


class ExampleRow(_Strict):
    """A labelled row: `prompt` or `messages`, and what a right answer is. A null counts as left out."""

    model_config = ConfigDict(json_schema_extra=_row_schema)

    prompt: FilledText | None = Field(None, description="A question, as for POST /score.")
    messages: Annotated[list[ExampleMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = Field(
        None, description="A conversation, as for POST /score."
    )
    reference: FilledText | Annotated[list[FilledText], Field(min_length=1, max_length=MAX_REFERENCES)] = (
        Field(description="The right answer, or several that are.")
    )
    id: Name | WholeNumber | None = Field(None, description="Your name for the row, unique in the file.")
    samples: Annotated[list[Text], Field(min_length=MIN_SAMPLES, max_length=MAX_SAMPLES)] | None = Field(
        None, description="Answers already drawn."
    )
    answer: Text | None = Field(None, description="The one answer that `correct` is about.")
    correct: bool | None = Field(None, description="Whether `answer` is right; left out: by ROUGE-L.")
    logprob: Any = Field(
        None, description="Recorded log-probabilities; only the command `evaluate` reads them."
    )
    tokens: Any = Field(None, description="Recorded token counts; only the command `evaluate` reads them.")

    @model_validator(mode="after")
    def is_asked_one_way(self) -> Self:
        """Refuse both of `prompt` and `messages`, and neither."""
        if problem := asked_twice_or_not_at_all(self.prompt, self.messages):
            raise PydanticCustomError("prompt_or_messages", "{problem}", {"problem": problem})
        return self


def asked_twice_or_not_at_all(prompt: object, messages: object) -> str | None:
    """Return what is wrong unless exactly one of the two is there."""
    if (prompt is None) != (messages is None):
        return None
    found = "neither is given" if prompt is None else "both are given"
    return f"exactly one of prompt and messages is needed; {found}"


ROW_FIELDS = tuple(ExampleRow.model_fields)
KNOWN_FIELDS = tuple(name for name in ROW_FIELDS if name not in IGNORED_FIELDS)
