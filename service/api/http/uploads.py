"""Taking in dev data: a multipart body spooled to disk, or a JSON body, bounded while it comes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.api.http.bodies import refusal
from service.api.http.upload_threads import UploadThreads
from service.api.routes.job_schemas import EvaluateOptionsIn, OptionsIn
from service.domain.devdata.reader import (
    DevData,
    UploadLimits,
    check_size,
    read_examples,
    read_file,
)
from service.domain.devdata.strict_json import parse_json
from service.domain.errors import BodyTooLarge, InvalidDevData, InvalidRequest, UnsupportedMediaType
from service.domain.jobs.model import CalibrateOptions, DevRow

MAX_JSON_BYTES = 16 << 20  # parsed in memory, at several times its size
MULTIPART_OVERHEAD = 1 << 20  # boundaries, part headers and option fields
MAX_FIELDS = 32
MAX_FIELD_BYTES = 64 << 10
LINGER_S = 2.0
_ROWS_AT_ONCE = 100


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
    """What was posted: rows that are not checked yet, by the names of the shape, and options that are."""

    parts: tuple[UploadedPart, ...]
    names: tuple[str, ...]
    options: CalibrateOptions

    def check(self, limits: UploadLimits) -> list[DevData]:
        """Return every part, all rows checked; for a thread. Raises InvalidDevData, BodyTooLarge."""
        found = [self._check(part, name, limits) for part, name in zip(self.parts, self.names, strict=True)]
        check_size([data.texts for data in found], self.options.num_samples, limits)
        return found

    def _check(self, part: UploadedPart, name: str, limits: UploadLimits) -> DevData:
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


@asynccontextmanager
async def received(
    request: Request, limits: UploadLimits, threads: UploadThreads, shape: Shape = CALIBRATE
) -> AsyncIterator[Upload]:
    """Receive a body and hold a place in the threads; its temporary files are gone when the context ends.

    Raises UnsupportedMediaType, BodyTooLarge, InvalidRequest, Overloaded, and Starlette's ClientDisconnect.
    """
    kind = _media_type(request)
    try:
        if kind == "multipart/form-data":
            most = len(shape.files) * limits.max_bytes + MULTIPART_OVERHEAD
            form = await _form(request, most, len(shape.files))
        else:
            body = await _body(request, min(limits.max_bytes, MAX_JSON_BYTES))
    except BodyTooLarge:
        await _linger(request)
        raise
    if kind != "multipart/form-data":
        async with threads.place():
            yield await threads.run(lambda: _from_json(body, shape))
        return
    try:
        async with threads.place():
            yield _from_form(form, shape)
    finally:
        await form.close()


def _media_type(request: Request) -> str:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("multipart/form-data", "application/json"):
        raise UnsupportedMediaType("Send multipart/form-data with a `file`, or application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body without Content-Encoding; the file itself may be gzip.")
    return kind


async def _bounded(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    too_large = BodyTooLarge(f"The body is larger than {max_bytes} bytes.", limit_bytes=max_bytes)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > max_bytes):
        raise too_large
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > max_bytes:
            raise too_large
        yield chunk


async def _linger(request: Request) -> None:
    """Read on a little and forget it: a sender who is cut off while sending may never see the answer.

    One who waits for `100 Continue` has sent nothing and would only be invited to.
    """
    if "expect" in request.headers:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (await request.receive()).get("more_body", False):
                pass


async def _body(request: Request, max_bytes: int) -> bytes:
    return b"".join([chunk async for chunk in _bounded(request, max_bytes)])


async def _form(request: Request, max_bytes: int, max_files: int) -> FormData:
    # Starlette's parser spools files over 1 MiB to disk, and closes them whatever the stream raises.
    stream = _bounded(request, max_bytes)
    bounds = {"max_files": max_files, "max_fields": MAX_FIELDS, "max_part_size": MAX_FIELD_BYTES}
    parser = MultiPartParser(request.headers, stream, **bounds)
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The multipart body cannot be read: {error.message}") from None


def _from_form(form: FormData, shape: Shape) -> Upload:
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
    parts = tuple(files[name].file for name in shape.files)
    return Upload(
        parts, shape.files, _options({n: text for n, text in fields.items() if text}, shape, strings=True)
    )


def _named(names: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _from_json(body: bytes, shape: Shape) -> Upload:
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


async def in_threads(data: DevData, threads: UploadThreads) -> AsyncIterator[DevRow]:
    """Yield the rows without holding up the event loop while they are read and parsed."""
    rows: Iterator[DevRow] = data.rows()
    while some := await threads.run(lambda: list(islice(rows, _ROWS_AT_ONCE))):
        for row in some:
            yield row
