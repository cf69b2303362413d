"""A row of dev data: its form in uploads (files, JSON bodies, the contract), in the store and in exports."""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from service.calibration.calibration import Unit
from service.claims.verdicts import Rule
from service.llm.prompt import Message, question_text, whole_question
from service.llm.samples import Draw, is_blank
from service.spectral.evidence import POSITIVE_ROUNDING

MIN_USABLE_ROWS = 10
FEW_ROWS = 100  # below this the report warns
MIN_SAMPLES, MAX_SAMPLES = 2, 256
MAX_REFERENCES = 64
MAX_MESSAGES = 1024
MAX_CLAIMS = 64  # of one answer
MAX_ID_CHARS = 200
MAX_LISTED = 3  # reasons for a field
MAX_FAULTS = 1000  # of a row; formatting more takes long
MAX_UNKNOWN = 20  # unknown fields named
MAX_COMPARED = 20  # faults of a field from which the reasons are chosen
LOGPROB_FIELDS = ("logprobs", "logprob")

# A character other than white space. Python (str.strip), Rust (pydantic) and JavaScript (readers of the
# contract) disagree on five characters, so the pattern names them.
NOT_BLANK = r"[^\s\x1c-\x1f\x85]|\ufeff"


def _integral(value: object) -> object:
    """Return 14 for 14.0: JSON Schema counts both as integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# pydantic rejects lone surrogates, which UTF-8 cannot encode, only in strings with a bound.
Text = Annotated[str, Field(min_length=0)]
FilledText = Annotated[str, Field(pattern=NOT_BLANK)]
Name = Annotated[str, Field(pattern=NOT_BLANK, max_length=MAX_ID_CHARS)]
LogProbability = Annotated[float, Field(le=POSITIVE_ROUNDING)]
# Servers that floor minus infinity send -9999; a sum of larger magnitudes would overflow.
TokenLogProbability = Annotated[float, Field(ge=-1e6, le=POSITIVE_ROUNDING)]
LogProbabilities = Annotated[list[LogProbability], Field(min_length=MIN_SAMPLES, max_length=MAX_SAMPLES)]
WholeNumber = Annotated[int, Field(ge=-(2**63), lt=2**63), BeforeValidator(_integral)]


HOW_TO_WRITE_LISTS = (
    'write a list of texts as JSON, such as ["Paris", "City of Light"], and a single text that looks like a '
    "list as a list of one"
)
# How Python prints the start of an array, of a tuple, dict or set of texts, or a truncated list of texts.
_PRINTED = re.compile(r"(?:\w++\.)?array\(\s*+\[|[({]\s*+'|\[\s*+['\"][^\]]*+\Z")


def parse_json(text: str | bytes) -> object:
    """Parse JSON without NaN and Infinity. Raises ValueError."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def listed_texts(reference: str) -> str | list[str]:
    """Return the texts of a JSON list that was turned into text; else the reference.

    Raises ValueError for a text that looks like any other list.
    """
    text, value = reference.strip(), None
    if text.startswith("[") and text.endswith("]"):
        with suppress(ValueError):
            value = parse_json(text)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        if value is not None or not {*text}.isdisjoint(",'\""):
            raise ValueError(f"looks like a list but is not a JSON list of texts; {HOW_TO_WRITE_LISTS}")
    elif _PRINTED.match(text):
        raise ValueError(f"looks like a list but is not a JSON list of texts; {HOW_TO_WRITE_LISTS}")
    return reference


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


class ExampleMessage(_Strict):
    """One turn of a row's conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Speaker of the turn.")
    content: Text = Field(description="Text of the turn.")


class ClaimIn(_Strict):
    """A claim of a row's answer: its `text` as in a score's `claims`, and a verdict."""

    text: FilledText = Field(description="Text of the claim.")
    correct: bool = Field(description="Whether the claim is right.")
    logprob: TokenLogProbability | None = Field(
        None, description="The value of the same name in a score's `claims`, for P(correct) without samples."
    )
    fact_logprob: TokenLogProbability | None = Field(
        None, description="The value of the same name in a score's `claims`."
    )
    least_logprob: TokenLogProbability | None = Field(
        None, description="The value of the same name in a score's `claims`."
    )


# How doubtful a verdict is, by its rule. A wrong answer that shares a longer word or a number with a
# reference may be right.
_DOUBT = {"contained": 6, "spelling": 5, "contains": 3, "none": 2, "equal": 1, "given": 0}
_DOUBT_OF_A_NEAR_MISS = 4
_LONGER_WORDS = re.compile(r"\d+|[^\W\d_]{4,}")


def _longer_words(text: str) -> set[str]:
    return set(_LONGER_WORDS.findall(text.casefold()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a calibration on the answer of a row.

    `rule`: "given" (by the data), or a rule of `service.claims.verdicts`.
    """

    answer: str
    correct: bool
    rule: Rule | Literal["given"]

    def doubt(self, references: Sequence[str]) -> int:
        """Return how doubtful the verdict is, 0 if the data gave it. Only the order of values matters."""
        if self.rule == "none" and _longer_words(self.answer) & _longer_words(" ".join(references)):
            return _DOUBT_OF_A_NEAR_MISS
        return _DOUBT[self.rule]


@dataclass(frozen=True, slots=True)
class DevRow:
    """A labelled row. One of `prompt` and `messages` is set, or neither if `samples` came without a prompt.

    `references`: right answers; may be empty for an `answer` with a verdict.
    `samples`: the answers already drawn, in order, including empty ones; None: the service draws them.
    `logprobs`: of each whole sample, in nats; None if unknown.
    `answer`: the answer that `correct` (the verdict in the data) is about; `answer_logprob`: of the whole
    answer, in nats.
    `claims`: of an answer, with verdicts.
    `verdict`: of a calibration on the row; None before the fit, and for rows with fewer answers than the fit.

    For rows in the store: `draws`: the uploaded answers (then `complete`), or the answers drawn so far;
    `refused`: what the LLM server said that refused it for good, None unless it did; `replies`: its replies
    to yes-or-no questions about the answers, by key (`service.llm.ask`).
    """

    line: int
    id: str | None
    references: tuple[str, ...]
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    answer: str | None = None
    answer_logprob: float | None = None
    correct: bool | None = None
    verdict: Verdict | None = None
    claims: tuple[ClaimIn, ...] = ()
    draws: tuple[Draw, ...] = ()
    complete: bool = False
    refused: str | None = None
    replies: Mapping[str, tuple[float | None, str]] = field(default_factory=dict)

    def labelled(self, unit: Unit) -> bool:
        """Return True if the row has labels.

        Claims need `claims`. Answers need a reference or a verdict; an `answer` must not be blank.
        """
        if unit == "claim":
            return bool(self.claims)
        has_verdict = self.answer is not None and self.correct is not None
        return (bool(self.references) or has_verdict) and not (
            self.answer is not None and is_blank(self.answer)
        )

    def usable(self, unit: Unit) -> bool:
        """Return True if a fit can use the row: it is labelled, and has two samples or none yet."""
        return self.labelled(unit) and (self.samples is None or len(self.samples) >= 2)

    @property
    def question(self) -> str | None:
        """Return the text of the question, as `question_text` does."""
        return question_text(self.prompt, self.messages)

    @property
    def whole_question(self) -> str:
        """Return the whole prompt, or all turns of the conversation; "" without either."""
        return whole_question(self.prompt, self.messages)

    @property
    def wording(self) -> Hashable:
        """Return a key that is equal for rows with the same question.

        White space, case and the encoding of accents do not matter. A row without prompt and messages gets
        its line, since it is not a copy of any other row.
        """
        if self.prompt is not None:
            return _plain(self.prompt)
        if self.messages is not None:
            return tuple((turn.role, _plain(turn.content)) for turn in self.messages)
        return self.line

    @property
    def context(self) -> Hashable:
        """Return the turns except the user's last one, in the form of `wording`."""
        turns = self.messages or ()
        last_user_turn = max((i for i, turn in enumerate(turns) if turn.role == "user"), default=None)
        return tuple((turn.role, _plain(turn.content)) for i, turn in enumerate(turns) if i != last_user_turn)

    @property
    def right_texts(self) -> tuple[str, ...]:
        """Return the references; without any, an `answer` that is right is its own reference."""
        if self.references or self.claims or self.answer is None or not self.correct:
            return self.references
        return (self.answer.strip(),)

    @property
    def alike_by(self) -> set[str]:
        """Return the references or, without any, the `answer`, in the form of `wording`.

        Near copies share at least one.
        """
        return {_plain(text) for text in self.references or (self.answer or "",)}


ROW = TypeAdapter(DevRow)


def _plain(text: str) -> str:
    # Not NFKC, which turns x² into x2. Normalized again, since folding may undo the normal form.
    folded = unicodedata.normalize("NFC", " ".join(text.split())).casefold()
    return unicodedata.normalize("NFC", folded)


def draws_to_json(draws: Sequence[Draw]) -> list[list[Any]]:
    """Return the draws as JSON values, in order."""
    return [[draw.text, draw.truncated, draw.logprob, draw.total_logprob, draw.num_tokens] for draw in draws]


def draws_from_json(values: Iterable[Sequence[Any]]) -> tuple[Draw, ...]:
    """Return the draws from the result of `draws_to_json`."""
    return tuple(Draw(*value) for value in values)


# The fields of a row in uploads: files, JSON bodies and the contract.


def _with(name: str, kind: str) -> dict[str, Any]:
    """Return the schema of an object with this field, not null."""
    return {
        "title": f"with {name}",
        "type": "object",
        "required": [name],
        "properties": {name: {"type": kind}},
    }


def _row_schema(schema: dict[str, Any]) -> None:
    """Add to the schema: one of prompt and messages, and log-probabilities only with samples, under one name.

    Defaults are removed, since clients would send them as nulls. JSON Schema cannot express that there is
    one log-probability for each sample.
    """
    schema["oneOf"] = [_with("prompt", "string"), _with("messages", "array")]
    schema["anyOf"] = [
        _with("reference", "string"),
        _with("reference", "array"),
        _with("claims", "array"),
        {"title": "with a verdict", "allOf": [_with("answer", "string"), _with("correct", "boolean")]},
    ]
    own, samples = [_with(name, "array") for name in LOGPROB_FIELDS], _with("samples", "array")
    one_name = {"type": "object", "not": {"type": "object", "allOf": own}}
    pairs = [
        *((each, samples) for each in own),
        (_with("answer_logprob", "number"), _with("answer", "string")),
    ]
    schema["allOf"] = [one_name, *({"type": "object", "if": a, "then": b} for a, b in pairs)]
    for property_ in schema["properties"].values():
        property_.pop("default", None)


class ExampleIn(_Strict):
    """A labelled row: `prompt` or `messages`, with the right answer. A null counts as left out."""

    model_config = ConfigDict(json_schema_extra=_row_schema)

    prompt: FilledText | None = Field(None, description="A question, as for POST /score.")
    messages: Annotated[list[ExampleMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = Field(
        None, description="A conversation, as for POST /score."
    )
    claims: Annotated[list[ClaimIn], Field(min_length=1, max_length=MAX_CLAIMS)] | None = Field(
        None, description="Claims of a long answer to the prompt, with verdicts, for `unit` = `claim`."
    )
    reference: (
        FilledText | Annotated[list[FilledText], Field(min_length=1, max_length=MAX_REFERENCES)] | None
    ) = Field(
        None,
        description="The right answer, or a list of right answers. Optional for rows with `claims`, and for "
        "rows with `answer` and `correct`. A text that is a JSON list of texts counts as that list.",
    )
    id: Name | WholeNumber | None = Field(None, description="Your name for the row. Unique in the file.")
    samples: Annotated[list[Text], Field(min_length=MIN_SAMPLES, max_length=MAX_SAMPLES)] | None = Field(
        None, description="Answers already drawn."
    )
    logprobs: LogProbabilities | None = Field(
        None, description="Natural-log probability of each whole sample, including its last token."
    )
    answer: Text | None = Field(None, description="The answer that `correct` is about.")
    answer_logprob: LogProbability | None = Field(
        None,
        description="Natural-log probability of the whole `answer`, including its last token, for "
        "P(correct) without samples.",
    )
    correct: bool | None = Field(
        None,
        description="Whether `answer` or, without one, the dominant answer is right. Left out: the "
        "words of the answer are compared with `reference`.",
    )
    logprob: LogProbabilities | None = Field(None, description="Another name of `logprobs`.")
    verdict: Any = Field(
        None,
        description="For exports: the judged answer, and the reason of the verdict. Not read. To "
        "correct a verdict, add `correct`.",
    )

    @field_validator("reference", mode="before")
    @classmethod
    def is_listed(cls, value: object) -> object:
        """Parse a JSON list that was turned into text."""
        try:
            return listed_texts(value) if isinstance(value, str) else value
        except ValueError as error:
            raise _misfit("reference", str(error)) from None

    @field_validator("messages")
    @classmethod
    def is_not_answered(cls, turns: list[ExampleMessage] | None) -> list[ExampleMessage] | None:
        """Refuse a conversation that ends with the assistant's turn: no score has such a prompt."""
        if turns and turns[-1].role == "assistant":
            raise _misfit("messages", "must not end with the assistant's turn: that is an `answer`")
        return turns

    @model_validator(mode="after")
    def is_labelled(self) -> Self:
        """Refuse a row without labels."""
        has_verdict = self.answer is not None and self.correct is not None
        if self.reference is None and self.claims is None and not has_verdict:
            raise _misfit("reference", "is missing; without it, give answer and correct")
        return self

    @model_validator(mode="after")
    def is_asked_one_way(self) -> Self:
        """Require exactly one of `prompt` and `messages`."""
        if (self.prompt is None) == (self.messages is None):
            fault = "neither is given" if self.prompt is None else "both are given"
            raise _misfit("prompt", f"exactly one of prompt and messages is needed; {fault}")
        return self

    @model_validator(mode="after")
    def has_a_log_probability_per_sample(self) -> Self:
        """Require one log-probability for each sample, under one name."""
        if self.logprobs is not None and self.logprob is not None:
            raise _misfit("logprob", "is another name of logprobs; give one of the two")
        name, numbers = ("logprobs", self.logprobs) if self.logprob is None else ("logprob", self.logprob)
        if numbers is not None and self.samples is None:
            raise _misfit(name, "needs samples, but the row has none")
        if numbers is not None and self.samples is not None and len(numbers) != len(self.samples):
            need = f"must hold one number for each of the {len(self.samples)} samples, not {len(numbers)}"
            raise _misfit(name, need)
        if self.answer_logprob is not None and self.answer is None:
            raise _misfit("answer_logprob", "needs answer, but the row has none")
        return self


def _misfit(field: str, reason: str) -> PydanticCustomError:
    return PydanticCustomError("misfit", "{reason}", {"reason": reason, "field": field})


ROW_FIELDS = tuple(ExampleIn.model_fields)


class RowError(ValueError):
    """A row cannot be used. `problems`: pairs of the field (None: the row itself) and the reason."""

    def __init__(self, *problems: tuple[str | None, str]) -> None:
        super().__init__("; ".join(reason for _, reason in problems))
        self.problems = problems


def check_row(line: int, raw: object) -> DevRow:
    """Return the row. A null counts as absent. Raises RowError with all invalid fields.

    raw: parsed JSON, or the RowError from parsing.
    """
    if isinstance(raw, RowError):
        raise raw
    if not isinstance(raw, dict):
        raise RowError((None, "must be an object"))
    if unknown := [name for name in raw if name not in ROW_FIELDS]:
        raise RowError((printable(unknown[0]), unknown_fields(unknown)))
    try:
        row = ExampleIn.model_validate(raw)
    except ValidationError as error:
        if error.error_count() > MAX_FAULTS:
            raise RowError((None, f"has {error.error_count()} faults, too many to list")) from None
        raise RowError(*_problems(error.errors(include_url=False, include_input=False))) from None
    return DevRow(
        line=line,
        id=None if row.id is None else str(row.id),
        prompt=row.prompt,
        messages=None if row.messages is None else tuple(Message(m.role, m.content) for m in row.messages),
        references=(row.reference,) if isinstance(row.reference, str) else tuple(row.reference or ()),
        samples=None if row.samples is None else tuple(row.samples),
        logprobs=tuple(row.logprobs or row.logprob or ()) or None,
        answer=row.answer,
        answer_logprob=row.answer_logprob,
        correct=row.correct,
        claims=tuple(row.claims or ()),
    )


def _problems(errors: Iterable[ErrorDetails]) -> list[tuple[str | None, str]]:
    """Return the reasons by field, from the most deeply nested errors, which are the most specific."""
    of_field = defaultdict[str | None, list[ErrorDetails]](list)
    for item in errors:
        field = item["ctx"]["field"] if item["type"] == "misfit" else next(map(str, item["loc"]), None)
        of_field[field].append(item)
    problems = list[tuple[str | None, str]]()
    for field, items in of_field.items():
        depth = max(len(item["loc"]) for item in items)
        deepest = [item for item in items if len(item["loc"]) == depth]
        reasons = dict.fromkeys(_reason(item) for item in deepest[:MAX_COMPARED])
        problems.append((field, "; ".join(list(reasons)[:MAX_LISTED])))
    return problems


_REASONS = {
    "extra_forbidden": "is not a field",
    "string_pattern_mismatch": "must not be empty",
    "bool_type": "must be a boolean: true or false, without quotes",
}


def _reason(error: ErrorDetails) -> str:
    message = _REASONS.get(error["type"], error["msg"])
    within = [str(part) for part in error["loc"][1:] if isinstance(part, int) or part.isidentifier()]
    return f"{'.'.join(within)}: {message}" if within else message


def write_row(row: DevRow) -> bytes:
    """Return a row as a line of JSONL. A usable row can be uploaded again.

    Half a surrogate pair, which an LLM may produce, becomes "?".
    """
    fields = ROW.dump_python(row)
    is_text = len(row.references) == 1 and _stays_text(row.references[0])
    fields["reference"] = row.references[0] if is_text else row.references
    exported = {name: fields[name] for name in ROW_FIELDS if fields.get(name) not in (None, ())}
    return json.dumps(exported, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _stays_text(reference: str) -> bool:
    try:
        return listed_texts(reference) == reference
    except ValueError:
        return False


def unknown_fields(names: Sequence[str]) -> str:
    """Return the message for unknown fields, with the known ones."""
    listed = ", ".join(repr(printable(name)) for name in names[:MAX_UNKNOWN])
    more = f" and {len(names) - MAX_UNKNOWN} more" if len(names) > MAX_UNKNOWN else ""
    return f"unknown: {listed}{more}; known are {', '.join(ROW_FIELDS)}; rename or remove others"


def printable(name: str) -> str:
    """Return a caller's name for a field, shortened and without characters that cannot be encoded."""
    return name[:40].encode("utf-8", "replace").decode()
