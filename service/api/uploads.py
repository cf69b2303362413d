"""What a body of dev data holds: rows, not yet checked, and options, checked."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.api.bodies import refusal
from service.calibration.files import DevData, UploadLimits, check_size, parse_json, read_examples, read_file
from service.errors import BodyTooLarge, InvalidDevData, InvalidRequest, Overloaded, UnsupportedMediaType
from service.jobs.model import CalibrateOptions, EvaluateOptions, JobOptions

UploadedPart = BinaryIO | list[object]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a route takes: names of its file parts, names of the lists in the JSON form, and its options."""

    files: tuple[str, ...]
    lists: tuple[str, ...]
    options: type[BaseModel]


CALIBRATE = Shape(("file",), ("examples",), CalibrateOptions)
EVALUATE = Shape(("dev", "test"), ("dev", "test"), EvaluateOptions)


@dataclass(frozen=True, slots=True)
class Upload:
    """What was posted: rows, not yet checked, by the names of the shape; and options, checked."""

    parts: tuple[UploadedPart, ...]
    names: tuple[str, ...]
    options: JobOptions

    def check(self, limits: UploadLimits) -> list[DevData]:
        """Return every part, all rows checked; for a thread. Raises InvalidDevData, BodyTooLarge."""
        checked = [self._check(part, name, limits) for part, name in zip(self.parts, self.names, strict=True)]
        check_size(checked, limits)
        return checked

    def _check(self, part: UploadedPart, name: str, limits: UploadLimits) -> DevData:
        try:
            if isinstance(part, list):
                return read_examples(part, limits, num_samples=self.options.num_samples)
            return read_file(part, limits, num_samples=self.options.num_samples)
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
            files_named = " and ".join(f"`{one}`" for one in shape.files)
            raise _invalid(name, f"must not be a file; send the data as {files_named}")
    for name in shape.files:
        if name not in files:
            raise _invalid(name, "is missing: send the data as a file part (with a filename)")
    # A field without text is left out: browsers send those of a form that nobody filled in, too.
    parts = tuple(files[name].file for name in shape.files)
    return Upload(
        parts, shape.files, _options({n: text for n, text in fields.items() if text}, shape, strings=True)
    )


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
    parts = tuple(sent.pop(name, None) for name in shape.lists)
    for name, rows in zip(shape.lists, parts, strict=True):
        if not isinstance(rows, list):
            raise _invalid(name, "must be a list of rows")
    return Upload(parts, shape.lists, _options(sent, shape, strings=False))


def _options(sent: dict[str, Any], shape: Shape, *, strings: bool) -> JobOptions:
    try:
        read = shape.options.model_validate_strings if strings else shape.options.model_validate
        options = read(sent, strict=not strings)  # a form has only strings, JSON says what it means
    except ValidationError as error:
        raise refusal(error) from None
    return JobOptions(**options.model_dump(exclude_none=True))


def _invalid(field: str, reason: str) -> InvalidRequest:
    shown = field[:100].encode("utf-8", "replace").decode()
    return InvalidRequest(f"{shown}: {reason}", [{"loc": ["body", shown], "msg": reason}])


# Taking in dev data: a multipart body spooled to disk, or a JSON body, bounded while it comes.
#
# Uploads are checked in threads of their own, so that nothing else waits for them.

T = TypeVar("T")
MAX_JSON_BYTES = 16 << 20  # parsed in memory, at several times its size
MULTIPART_OVERHEAD = 1 << 20  # boundaries, part headers and option fields
# There are a dozen options; Starlette's own bounds are 1000 fields of 1 MiB.
MAX_FIELDS = 32
MAX_FIELD_BYTES = 64 << 10
LINGER_S = 2.0


class UploadThreads:
    """A few threads, and places for the uploads that they read or that wait for them."""

    def __init__(self, *, threads: int = 2, places: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="upload")
        self._free = places

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place; raises Overloaded when none is free."""
        if not self._free:
            raise Overloaded("Too many uploads are being read.")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. Hold a place meanwhile; a caller that is cancelled does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


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
            form = await _form(request, most)
        else:
            most = min(limits.max_bytes, MAX_JSON_BYTES)
            body = b"".join([chunk async for chunk in _bounded(request, most)])
    except BodyTooLarge:
        await _linger(request)
        raise
    if kind != "multipart/form-data":
        async with threads.place():
            yield await threads.run(lambda: from_json(body, shape))
        return
    try:
        async with threads.place():
            yield from_form(form, shape)
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
    # Longer numbers are not parsed: the time that takes grows with the square of their length.
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > max_bytes):
        raise too_large
    seen = 0  # counted all the same: a chunked body declares nothing, and a declared length may be wrong
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


class _WholeForms(MultiPartParser):
    """Starlette's parser, which by itself takes a body that is cut off, and drops the part that was cut.

    It spools files over 1 MiB to disk, and closes them whatever the stream raises.
    """

    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes, None], **bounds: int) -> None:
        super().__init__(headers, self._whole(stream), **bounds)
        self._ended = False

    def on_end(self) -> None:
        """Note the closing boundary."""
        self._ended = True

    async def _whole(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in stream:
            yield chunk
        # Told as an error of the stream: for one after the parsing, the file that was cut would stay open.
        if not self._ended:
            raise MultiPartException("it ends before its closing boundary.")


async def _form(request: Request, max_bytes: int) -> FormData:
    stream = _bounded(request, max_bytes)
    # More files than any route takes, so that one too many is named instead of counted.
    bounds = {"max_files": MAX_FIELDS, "max_fields": MAX_FIELDS, "max_part_size": MAX_FIELD_BYTES}
    parser = _WholeForms(request.headers, stream, **bounds)
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The multipart body cannot be read: {error.message}") from None
