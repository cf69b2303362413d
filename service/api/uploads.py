"""Taking in dev data: a multipart body spooled to disk, or a JSON body, bounded while it comes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.api.bodies import refusal
from service.api.calibration_schemas import OptionsIn
from service.domain.devdata import DevData, UploadLimits, parse_json, read_examples, read_file
from service.domain.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from service.domain.jobs import CalibrateOptions, DevRow

MAX_JSON_BYTES = 16 << 20  # parsed in memory, at several times its size
MULTIPART_OVERHEAD = 1 << 20  # boundaries, part headers and option fields
MAX_FIELDS = 32
MAX_FIELD_BYTES = 64 << 10
LINGER_S = 2.0
_ROWS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Upload:
    """What was posted: rows that are not checked yet, and options that are."""

    rows: BinaryIO | list[object]
    options: CalibrateOptions

    def check(self, limits: UploadLimits) -> DevData:
        """Return the rows, all of them checked; for a thread. Raises InvalidDevData, BodyTooLarge."""
        mixed_ok = self.options.drawn_by == "service"
        if isinstance(self.rows, list):
            return read_examples(self.rows, limits, mixed_ok=mixed_ok)
        return read_file(self.rows, limits, mixed_ok=mixed_ok)


@asynccontextmanager
async def received(request: Request, limits: UploadLimits) -> AsyncIterator[Upload]:
    """Receive a body; its temporary file is gone when the context ends.

    Raises UnsupportedMediaType, BodyTooLarge, InvalidRequest, and Starlette's ClientDisconnect.
    """
    kind = _media_type(request)
    try:
        if kind == "multipart/form-data":
            form = await _form(request, limits.max_bytes + MULTIPART_OVERHEAD)
        else:
            body = await _body(request, min(limits.max_bytes, MAX_JSON_BYTES))
    except BodyTooLarge:
        await _linger(request)
        raise
    if kind != "multipart/form-data":
        yield await asyncio.to_thread(_from_json, body)
        return
    try:
        yield _from_form(form)
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


async def _form(request: Request, max_bytes: int) -> FormData:
    # Starlette's parser spools files over 1 MiB to disk, and closes them whatever the stream raises.
    stream = _bounded(request, max_bytes)
    bounds = {"max_files": 1, "max_fields": MAX_FIELDS, "max_part_size": MAX_FIELD_BYTES}
    parser = MultiPartParser(request.headers, stream, **bounds)
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The multipart body cannot be read: {error.message}") from None


def _from_form(form: FormData) -> Upload:
    fields: dict[str, str] = {}
    file: UploadFile | None = None
    for name, value in form.multi_items():
        if name in fields:
            raise _invalid(name, "is given twice")
        if isinstance(value, str):
            fields[name] = value
        elif name == "file":
            file = value
        else:
            raise _invalid(name, "must not be a file; send the data as `file`")
    if file is None:
        raise _invalid("file", "is missing: send the data as a file part (with a filename)")
    return Upload(file.file, _options({name: text for name, text in fields.items() if text}, strings=True))


def _from_json(body: bytes) -> Upload:
    try:
        sent = parse_json(body.decode())
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8.") from None
    except ValueError as error:
        raise InvalidRequest(f"The body {error}.", [{"loc": ["body"], "msg": str(error)}]) from None
    if not isinstance(sent, dict):
        raise InvalidRequest("The body must be an object.", [{"loc": ["body"], "msg": "must be an object"}])
    examples = sent.pop("examples", None)
    if not isinstance(examples, list):
        raise _invalid("examples", "must be a list of rows")
    return Upload(examples, _options(sent, strings=False))


def _options(sent: dict[str, Any], *, strings: bool) -> CalibrateOptions:
    try:
        read = OptionsIn.model_validate_strings if strings else OptionsIn.model_validate
        options = read(sent, strict=not strings)  # a form has only strings, JSON says what it means
    except ValidationError as error:
        raise refusal(error) from None
    return CalibrateOptions(**options.model_dump())


def _invalid(field: str, reason: str) -> InvalidRequest:
    shown = field[:100].encode("utf-8", "replace").decode()
    return InvalidRequest(f"{shown}: {reason}", [{"loc": ["body", shown], "msg": reason}])


async def in_threads(data: DevData) -> AsyncIterator[DevRow]:
    """Yield the rows without holding up the event loop while they are read and parsed."""
    rows: Iterator[DevRow] = data.rows()
    while some := await asyncio.to_thread(lambda: list(islice(rows, _ROWS_AT_ONCE))):
        for row in some:
            yield row
