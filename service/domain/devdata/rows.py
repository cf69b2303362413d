"""One row of dev data: from parsed JSON to a checked `DevRow`, or every reason why not."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from service.domain.jobs.model import DevRow
from service.domain.models import Message

KNOWN_FIELDS = ("prompt", "messages", "reference", "id", "samples", "answer", "correct")
# Recorded beside the answers, one number for each: the command `evaluate` reads them, a calibration does not.
IGNORED_FIELDS = ("logprob", "tokens")
ROW_FIELDS = KNOWN_FIELDS + IGNORED_FIELDS
MAX_REFERENCES = 64
MAX_SAMPLES = 256
MAX_MESSAGES = 1024
MAX_ID_CHARS = 200
_ROLES = ("system", "user", "assistant")


class RowError(ValueError):
    """A row cannot be used: `problems` holds pairs of the field (None: the row itself) and the reason."""

    def __init__(self, *problems: tuple[str | None, str]) -> None:
        super().__init__("; ".join(reason for _, reason in problems))
        self.problems = problems


class _FieldError(ValueError):
    pass


class _JsonError(ValueError):
    pass


def parse_json(text: str) -> object:
    """Parse strict JSON: no NaN or Infinity, no key twice, no nesting without end. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise _JsonError(f"is no valid JSON: {error.msg} (column {error.colno})") from error
    except _JsonError:
        raise
    except ValueError as error:  # the interpreter's bound on the digits of an integer
        raise _JsonError("holds a number of too many digits") from error
    except RecursionError as error:
        raise _JsonError("is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise _JsonError(f"holds {name}, which is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _JsonError("gives a key twice")
    return found


def check_row(line: int, raw: object) -> DevRow:
    """Return the row; raise RowError with every field that does not fit. A null counts as absent."""
    if not isinstance(raw, dict):
        raise RowError((None, f"must be an object, not {_kind(raw)}"))
    given = {name: value for name, value in raw.items() if value is not None}
    problems = _unknown_fields(given) + _missing_fields(given)
    values: dict[str, Any] = {}
    for name in KNOWN_FIELDS:
        try:
            values[name] = _CHECKS[name](given[name]) if name in given else None
        except _FieldError as error:
            problems.append((name, str(error)))
    if problems:
        raise RowError(*problems)
    return _dev_row(line, values)


def _dev_row(line: int, values: Mapping[str, Any]) -> DevRow:
    return DevRow(
        line=line,
        id=values["id"],
        prompt=values["prompt"],
        messages=values["messages"],
        references=values["reference"],
        samples=values["samples"],
        answer=values["answer"],
        correct=values["correct"],
    )


def unknown_field(name: str) -> tuple[str, str]:
    """Return the problem of a field or column that no row has."""
    shown = printable(name)
    return shown, f"unknown field {shown!r}; known are {', '.join(ROW_FIELDS)}"


def printable(name: str) -> str:
    """Return a name of the caller's, short and without what cannot be shown."""
    return name[:40].encode("utf-8", "replace").decode()


def _unknown_fields(given: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    unknown = [name for name in given if name not in ROW_FIELDS]
    return [unknown_field(name) for name in unknown[:3]]


def _missing_fields(given: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    missing: list[tuple[str | None, str]] = []
    if ("prompt" in given) == ("messages" in given):
        both = "both are given" if "prompt" in given else "neither is given"
        missing.append(("prompt", f"exactly one of prompt and messages is needed; {both}"))
    if "reference" not in given:
        missing.append(("reference", "is missing"))
    return missing


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def text(value: object, what: str = "must be") -> str:
    """Return a string that can be written as UTF-8, which has no lone surrogates."""
    if not isinstance(value, str):
        raise _FieldError(f"{what} a string, not {_kind(value)}")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise _FieldError("holds half of a surrogate pair, which is no Unicode text")
    return value


def _filled(value: object, what: str = "must be") -> str:
    if not text(value, what).strip():
        raise _FieldError("must not be empty" if what == "must be" else f"{what} strings that are not empty")
    return str(value)


def _strings(value: object, least: int, most: int, check: Callable[[object, str], str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _FieldError(f"must be a list of strings, not {_kind(value)}")
    if not least <= len(value) <= most:
        raise _FieldError(f"must hold {least} to {most} strings, not {len(value)}")
    return tuple(check(item, "must hold") for item in value)


def _reference(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return _strings(value, 1, MAX_REFERENCES, _filled)
    if not isinstance(value, str):
        raise _FieldError(f"must be a string or a list of strings, not {_kind(value)}")
    return (_filled(value),)


def _samples(value: object) -> tuple[str, ...]:
    return _strings(value, 2, MAX_SAMPLES, text)


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise _FieldError(f"must be a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(item) for item in value)


def _message(item: object) -> Message:
    if not isinstance(item, dict) or item.keys() != {"role", "content"}:
        raise _FieldError("each message must be an object of role and content")
    if item["role"] not in _ROLES:
        raise _FieldError(f"role must be one of {', '.join(_ROLES)}")
    return Message(item["role"], text(item["content"], "content must be"))


def _id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _FieldError(f"must be a string or a whole number, not {_kind(value)}")
    name = _filled(str(value))
    if len(name) > MAX_ID_CHARS:
        raise _FieldError(f"must have at most {MAX_ID_CHARS} characters")
    return name


def _correct(value: object) -> bool:
    if not isinstance(value, bool):
        raise _FieldError(f"must be true or false, not {_kind(value)}")
    return value


_CHECKS: dict[str, Callable[[object], Any]] = {
    "prompt": _filled,
    "messages": _messages,
    "reference": _reference,
    "samples": _samples,
    "answer": text,
    "id": _id,
    "correct": _correct,
}
