"""Uploads of dev data: unchecked rows and checked options.

A multipart body is spooled to disk. The size of either kind of body is limited while it arrives.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message

from service.calibration.files import DevData, UploadLimits, check_size, read_examples, read_file
from service.calibration.rows import parse_json
from service.errors import BodyTooLarge, InvalidRequest, Overloaded, UnsupportedMediaType
from service.http.problems import refusal
from service.jobs.model import MAX_NAME, CalibrateOptions, JobOptions
from service.sharing import Places, Threads

MAX_JSON_BYTES = 16 << 20  # parsed in memory, at several times its size
MULTIPART_OVERHEAD = 1 << 20  # boundaries, part headers and option fields
# There are a dozen options; Starlette's own limits are 1000 fields of 1 MiB.
MAX_FIELDS = 32
MAX_FIELD_BYTES = 64 << 10
UPLOAD_THREADS = 2
NAMELESS = frozenset({"file", "upload", "blob"})  # default file names that clients send
MAX_UPLOADS = 8  # being read and stored, or waiting


@dataclass(frozen=True, slots=True)
class Upload:
    """A posted upload: unchecked rows, as a file or a list, and checked options."""

    data: BinaryIO | list[object]
    options: JobOptions

    def check(self, limits: UploadLimits) -> DevData:
        """Check all rows and return them. Blocks. Raises InvalidDevData, BodyTooLarge."""
        num_samples = self.options.num_samples
        if isinstance(self.data, list):
            checked = read_examples(self.data, limits, num_samples=num_samples)
        else:
            checked = read_file(self.data, limits, num_samples=num_samples)
        check_size(checked, limits)
        return checked


def from_form(form: FormData) -> Upload:
    """Return the upload in a form. Raises InvalidRequest."""
    sent = dict(form)
    if len(sent) < len(form.multi_items()):
        raise InvalidRequest("A field of the form is given twice.")
    file = sent.pop("file", None)
    if not isinstance(file, UploadFile):
        raise _invalid("file", "is missing: send the data as `file`, a part with a filename")
    for name, value in sent.items():
        if not isinstance(value, str):
            raise _invalid(name, "must not be a file; send the data as `file`")
    # Empty fields are left out, since browsers also send fields that nobody filled in.
    filled = {"name": name_of(file.filename or ""), **{name: text for name, text in sent.items() if text}}
    return Upload(file.file, _options(filled, strings=True))


def name_of(filename: str) -> str:
    """Return a file's name without folders and extension, shortened; "" for a default name."""
    base = re.split(r"[/\\]", filename)[-1]
    name = re.sub(r"\.(?:jsonl|ndjson|json|csv|txt)\Z", "", base, flags=re.IGNORECASE)
    return "" if name in NAMELESS else name[:MAX_NAME]


def from_json(body: bytes) -> Upload:
    """Return the upload in a JSON body. Raises InvalidRequest."""
    try:
        sent = parse_json(body)
    except ValueError as error:
        raise InvalidRequest(f"The body {error}.", [{"loc": ["body"], "msg": str(error)}]) from None
    if not isinstance(sent, dict):
        raise InvalidRequest("The body must be an object.", [{"loc": ["body"], "msg": "must be an object"}])
    rows = sent.pop("examples", None)
    if not isinstance(rows, list):
        raise _invalid("examples", "must be a list of rows")
    return Upload(rows, _options(sent, strings=False))


def _options(sent: dict[str, Any], *, strings: bool) -> JobOptions:
    try:
        read = CalibrateOptions.model_validate_strings if strings else CalibrateOptions.model_validate
        options = read(sent, strict=not strings)  # a form has only strings, JSON has types
    except ValidationError as error:
        raise refusal(error) from None
    return JobOptions(**options.model_dump(exclude_none=True))


def _invalid(field: str, reason: str) -> InvalidRequest:
    shown = field[:100]
    return InvalidRequest(f"{shown}: {reason}", [{"loc": ["body", shown], "msg": reason}])


class UploadThreads(Threads):
    """Threads for uploads only, so that nothing else waits for uploads, and a limit on uploads."""

    def __init__(self) -> None:
        super().__init__("uploads", UPLOAD_THREADS)
        self._uploads = Places(MAX_UPLOADS)

    def place(self) -> AbstractContextManager[None]:
        """Hold a place for an upload until it is stored. Raises Overloaded if there are too many."""
        if not self._uploads.has_room():
            raise Overloaded("Too many uploads are being read.")
        return self._uploads.held()


@asynccontextmanager
async def received(request: Request, limits: UploadLimits, threads: UploadThreads) -> AsyncIterator[Upload]:
    """Receive a body. Its temporary files are deleted when the context ends.

    Raises UnsupportedMediaType, BodyTooLarge, InvalidRequest, Overloaded, and Starlette's ClientDisconnect.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("multipart/form-data", "application/json"):
        raise UnsupportedMediaType("Send multipart/form-data with a `file`, or application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body without Content-Encoding.")
    if kind == "application/json":
        body = await _bounded(request, min(limits.max_bytes, MAX_JSON_BYTES)).body()
        with threads.place():
            yield await threads.run(from_json, body)
        return
    bounded = _bounded(request, limits.max_bytes + MULTIPART_OVERHEAD)
    # More files than the route takes, so that the error names a superfluous file.
    reading = bounded.form(max_files=MAX_FIELDS, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    try:
        async with reading as form:
            with threads.place():
                yield from_form(form)
    except HTTPException as error:
        raise InvalidRequest(f"The multipart body cannot be read: {error.detail}") from None


def _bounded(request: Request, max_bytes: int) -> Request:
    """Return the request with a limit on its body.

    Raises BodyTooLarge at once if the declared length is over the limit, else while the body is read.
    """
    too_large = BodyTooLarge(f"The body is larger than {max_bytes} bytes.", limit_bytes=max_bytes)
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise too_large
    num_bytes = 0

    async def receive() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise too_large
        return message

    return Request(request.scope, receive)
