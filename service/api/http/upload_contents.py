"""What a body of dev data holds: rows, not yet checked, and options, checked."""

from dataclasses import dataclass
from typing import Any, BinaryIO

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile

from service.api.http.bodies import refusal
from service.api.routes.job_schemas import EvaluateOptionsIn, OptionsIn
from service.domain.devdata.bytes import UploadLimits
from service.domain.devdata.file_check import check_size
from service.domain.devdata.formats import parse_json
from service.domain.devdata.reader import DevData, read_examples, read_file
from service.domain.errors import BodyTooLarge, InvalidDevData, InvalidRequest
from service.domain.jobs.model import CalibrateOptions

UploadedPart = BinaryIO | list[object]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a route takes: names of its file parts, names of the lists in the JSON form, and its options."""

    files: tuple[str, ...]
    lists: tuple[str, ...]
    options: type[BaseModel]


CALIBRATE = Shape(("file",), ("examples",), OptionsIn)
EVALUATE = Shape(("dev", "test"), ("dev", "test"), EvaluateOptionsIn)


@dataclass(frozen=True, slots=True)
class Upload:
    """What was posted: rows, not yet checked, by the names of the shape; and options, checked."""

    parts: tuple[UploadedPart, ...]
    names: tuple[str, ...]
    options: CalibrateOptions

    def check(self, limits: UploadLimits) -> list[DevData]:
        """Return every part, all rows checked; for a thread. Raises InvalidDevData, BodyTooLarge."""
        found = [self._check(part, name, limits) for part, name in zip(self.parts, self.names, strict=True)]
        check_size([data.texts for data in found], self.options.num_samples, limits)
        return found

    def _check(self, part: UploadedPart, name: str, limits: UploadLimits) -> DevData:
        # Missing answers can be drawn only where it is the service that draws.
        mixed_ok = self.options.drawn_by == "service"
        try:
            if isinstance(part, list):
                return read_examples(part, limits, mixed_ok=mixed_ok)
            return read_file(part, limits, mixed_ok=mixed_ok)
        except (InvalidDevData, BodyTooLarge) as error:
            if len(self.parts) > 1:
                _name(error, name)
            raise


def _name(error: InvalidDevData | BodyTooLarge, name: str) -> None:
    """Say which of several files or lists an error is about."""
    error.detail = f"{name}: {error.detail}"
    for one in error.extra.get("errors", ()):
        place = 1 if one["loc"][0] == "body" else 0  # ["body", "examples", ...] or ["file", ...]
        one["loc"][place] = name


def from_form(form: FormData, shape: Shape) -> Upload:
    """Return what a form holds. Raises InvalidRequest."""
    fields: dict[str, str] = {}
    files: dict[str, UploadFile] = {}
    for name, value in form.multi_items():
        if name in fields or name in files:
            raise _invalid(name, "is given twice")
        if isinstance(value, str):
            fields[name] = value
        elif name in shape.files:
            files[name] = value
        else:
            raise _invalid(name, f"must not be a file; send the data as {_named(shape.files)}")
    for name in shape.files:
        if name not in files:
            raise _invalid(name, "is missing: send the data as a file part (with a filename)")
    # A field without text is left out: browsers send those of a form that nobody filled in, too.
    parts = tuple(files[name].file for name in shape.files)
    return Upload(
        parts, shape.files, _options({n: text for n, text in fields.items() if text}, shape, strings=True)
    )


def _named(names: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def from_json(body: bytes, shape: Shape) -> Upload:
    """Return what a JSON body holds. Raises InvalidRequest."""
    try:
        sent = parse_json(body.decode())
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8.") from None
    except ValueError as error:
        raise InvalidRequest(f"The body {error}.", [{"loc": ["body"], "msg": str(error)}]) from None
    if not isinstance(sent, dict):
        raise InvalidRequest("The body must be an object.", [{"loc": ["body"], "msg": "must be an object"}])
    parts = tuple(_list_of(sent, name) for name in shape.lists)
    return Upload(parts, shape.lists, _options(sent, shape, strings=False))


def _list_of(sent: dict[str, Any], name: str) -> list[object]:
    rows = sent.pop(name, None)
    if not isinstance(rows, list):
        raise _invalid(name, "must be a list of rows")
    return rows


def _options(sent: dict[str, Any], shape: Shape, *, strings: bool) -> CalibrateOptions:
    try:
        read = shape.options.model_validate_strings if strings else shape.options.model_validate
        options = read(sent, strict=not strings)  # a form has only strings, JSON says what it means
    except ValidationError as error:
        raise refusal(error) from None
    return CalibrateOptions(**options.model_dump())


def _invalid(field: str, reason: str) -> InvalidRequest:
    shown = field[:100].encode("utf-8", "replace").decode()
    return InvalidRequest(f"{shown}: {reason}", [{"loc": ["body", shown], "msg": reason}])
