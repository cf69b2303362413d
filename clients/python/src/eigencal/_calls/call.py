"""A call as data: neither client adds anything to it but the sending."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from eigencal._calls.repeat import Repeat
from eigencal._errors import InvalidSetup, UnexpectedAnswer
from eigencal._sending.uploads import Upload

T = TypeVar("T")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read. `path` begins with a slash and is quoted."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    upload: Upload | None = None
    repeat: Repeat = Repeat.SAFE

    @property
    def deadline_ms(self) -> int | None:
        """The deadline that is sent with it."""
        found = (self.body or {}).get("deadline_ms")
        return found if isinstance(found, int) else None


def path(template: str, **parts: str) -> str:
    """Return a path with its parts quoted, so that an id never becomes another path. Raises InvalidSetup."""
    return template.format(**{name: _quoted(part) for name, part in parts.items()})


def _quoted(part: str) -> str:
    # Quoting leaves dots as they are, and on its way `/jobs/..` becomes `/`.
    if not isinstance(part, str) or part in ("", ".", ".."):
        raise InvalidSetup(f"{part!r} is no id.")
    try:
        return quote(part, safe="")
    except UnicodeEncodeError:
        raise InvalidSetup(f"{part!a} is no id: it holds half of a character.") from None


def header(name: str, value: str) -> dict[str, str]:
    """Return a header of the caller's, by its name. Raises InvalidSetup for what no header can hold."""
    if not (value.isascii() and value.isprintable() and value.strip() == value):
        raise InvalidSetup(f"{name} holds characters that no header can: {value!a}.")
    return {name: value}


@overload
def reader(kind: type[T]) -> Callable[[httpx.Response], T]: ...
@overload
def reader(kind: Any) -> Callable[[httpx.Response], Any]: ...
def reader(kind: Any) -> Callable[[httpx.Response], Any]:
    """Return what reads a JSON answer as a type. It raises UnexpectedAnswer where the answer is none."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(response: httpx.Response) -> Any:
        try:
            return adapter.validate_json(response.content)
        except ValidationError as error:
            raise unexpected(response, error) from None

    return read


def unexpected(response: httpx.Response, error: ValidationError) -> UnexpectedAnswer:
    """Return the error for an answer that does not fit. It tells places, never contents."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    request = response.request
    return UnexpectedAnswer(
        f"{request.method} {request.url.path} was answered {response.status_code}, but not as the contract "
        f"has it: {where}: {first['msg']}"
    )


def nothing(response: httpx.Response) -> None:
    """Read an answer without a body."""


def text(response: httpx.Response) -> str:
    """Read an answer as text."""
    return response.text


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are given: None means left out."""
    # A generator could be read for the first attempt alone.
    return {
        name: list(value) if isinstance(value, Iterator) else value
        for name, value in fields.items()
        if value is not None
    }
