"""What a row of dev data may hold, said once: for files, for JSON bodies and for the contract."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from service.spectral.missing_mass import POSITIVE_ROUNDING

# Recorded beside the answers, one number for each: the command `evaluate` reads it, a calibration does not.
# What a calibration has judged is written beside a row, and not read again: `correct` corrects it.
IGNORED_FIELDS = ("tokens", "verdict")
LOGPROB_FIELDS = ("logprobs", "logprob")
MIN_SAMPLES, MAX_SAMPLES = 2, 256
MAX_REFERENCES = 64
MAX_MESSAGES = 1024
MAX_ID_CHARS = 200
ANSWERED = "answered"  # kind of the error of a conversation that ends with the assistant's turn
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
LogProbability = Annotated[float, Field(le=POSITIVE_ROUNDING)]
LogProbabilities = Annotated[list[LogProbability], Field(min_length=MIN_SAMPLES, max_length=MAX_SAMPLES)]
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
    """Say that a row is asked one way, and its log-probabilities go with samples, under one name.

    Leaves out defaults, which would tell clients to send nulls. That there are as many as samples is beyond
    JSON Schema.
    """
    schema["oneOf"] = [_with("prompt", "string"), _with("messages", "array")]
    own, samples = [_with(name, "array") for name in LOGPROB_FIELDS], _with("samples", "array")
    one_name = {"type": "object", "not": {"type": "object", "allOf": own}}
    schema["allOf"] = [one_name, *({"type": "object", "if": each, "then": samples} for each in own)]
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
    logprobs: LogProbabilities | None = Field(
        None, description="The natural-log probability of each whole sample, its last token included."
    )
    answer: Text | None = Field(None, description="The one answer that `correct` is about.")
    correct: bool | None = Field(
        None, description="Whether `answer`, or else the dominant answer, is right; left out: by its words."
    )
    logprob: LogProbabilities | None = Field(None, description="Another name of `logprobs`.")
    tokens: Any = Field(None, description="Recorded token counts; only the command `evaluate` reads them.")
    verdict: Any = Field(
        None, description="Of an export: what was judged, and why; not read. To correct it, add `correct`."
    )

    @model_validator(mode="after")
    def is_asked_one_way(self) -> Self:
        """Refuse both of `prompt` and `messages`, and neither."""
        if problem := asked_twice_or_not_at_all(self.prompt, self.messages):
            raise PydanticCustomError("prompt_or_messages", "{problem}", {"problem": problem})
        return self

    @field_validator("messages")
    @classmethod
    def is_not_answered(cls, turns: list[ExampleMessage] | None) -> list[ExampleMessage] | None:
        """Refuse a conversation that the assistant has answered: none such is scored."""
        if turns and turns[-1].role == "assistant":
            raise PydanticCustomError(ANSWERED, "must not end with the assistant's turn: that is an `answer`")
        return turns

    @model_validator(mode="after")
    def has_a_log_probability_per_sample(self) -> Self:
        """Refuse log-probabilities without samples, another number of them, or under both names."""
        if problem := misfit_logprobs(self.samples, self.logprobs, self.logprob):
            raise PydanticCustomError("misfit_logprobs", "{problem}", {"problem": problem[1]})
        return self


def misfit_logprobs(samples: object, logprobs: object, logprob: object) -> tuple[str, str] | None:
    """Return the field, and what is wrong unless there is one number for each sample, under one name."""
    if logprobs is not None and logprob is not None:
        return "logprob", "is another name of logprobs; give one of the two"
    name, told = ("logprobs", logprobs) if logprob is None else ("logprob", logprob)
    if not isinstance(told, list):
        return None
    if not isinstance(samples, list):
        return name, "goes with samples, which the row lacks"
    if len(told) == len(samples):
        return None
    return name, f"must hold one number for each of the {len(samples)} samples, not {len(told)}"


def asked_twice_or_not_at_all(prompt: object, messages: object) -> str | None:
    """Return what is wrong unless exactly one of the two is there."""
    if (prompt is None) != (messages is None):
        return None
    found = "neither is given" if prompt is None else "both are given"
    return f"exactly one of prompt and messages is needed; {found}"


ROW_FIELDS = tuple(ExampleRow.model_fields)
KNOWN_FIELDS = tuple(name for name in ROW_FIELDS if name not in IGNORED_FIELDS)
