"""What POST /calibrate and POST /evaluate share: an upload becomes a job, and the answer says where it is."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import Header, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from service.api.http.auth import ADMIN_CODES
from service.api.http.deps import Services
from service.api.http.openapi import responses
from service.api.http.upload_contents import Shape, Upload
from service.api.http.uploads import received
from service.api.routes.job_schemas import job_view
from service.domain.devdata.reader import DevData
from service.domain.errors import InvalidRequest
from service.domain.jobs.model import CalibrateOptions, DevRow, Job

CLIENT_CLOSED_REQUEST = 499  # nobody is left to read it
CODES = (*ADMIN_CODES, "store_unavailable", "internal")
BAD_UPLOAD = ("invalid_request", "invalid_dev_data", "body_too_large", "unsupported_media_type")
UPLOAD_CODES = (*BAD_UPLOAD, "conflict", "overloaded")
LOCATION: dict[str, Any] = {
    "headers": {"Location": {"description": "Path of the job.", "schema": {"type": "string"}}}
}

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="The same file and options under the same key give the same job.",
    ),
]
# From an upload and its checked parts to the rows of the job, and the options that go with them.
Taken = Callable[[Upload, list[DevData]], tuple[AsyncIterator[DevRow], CalibrateOptions]]


def example(value: object) -> dict[str, Any]:
    """Return the OpenAPI entry of an example response."""
    return {"content": {"application/json": {"example": value}}}


def queued(job: dict[str, Any], *codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of a route that answers with a job that will run; `job`: as an example."""
    return {202: {**example(job), **LOCATION}, **responses(*CODES, *codes)}


def upload_body(name: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that its route reads itself: a form, or JSON."""
    forms = {"multipart/form-data": f"{name}Form", "application/json": f"{name}Request"}
    content = {kind: {"schema": {"$ref": f"#/components/schemas/{form}"}} for kind, form in forms.items()}
    return {"requestBody": {"required": True, "content": content}}


async def submitted(request: Request, app: Services, shape: Shape, key: str | None, taken: Taken) -> Response:
    """Check all rows of an upload, store them with a job, and answer with it; one bad row stores nothing."""
    _one_key(request)
    try:
        async with received(request, app.limits, app.threads, shape) as upload:
            parts = await app.threads.run(lambda: upload.check(app.limits))
            rows, options = taken(upload, parts)
            job, _ = await app.jobs.submit(rows, options, idempotency_key=key)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return accepted(job)


def _one_key(request: Request) -> None:
    """Refuse several keys, of which FastAPI would take one in silence. Raises InvalidRequest."""
    if len(request.headers.getlist("idempotency-key")) > 1:
        told = "is given more than once"
        raise InvalidRequest(
            f"Idempotency-Key: {told}", [{"loc": ["header", "Idempotency-Key"], "msg": told}]
        )


def accepted(job: Job) -> Response:
    """Return a job that will run as a response that says where to look for it."""
    content = job_view(job).model_dump_json()
    return Response(content, 202, {"Location": f"/jobs/{job.id}"}, "application/json")
