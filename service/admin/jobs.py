"""POST /calibrate and the routes of jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import BeforeValidator
from pydantic_core import PydanticKnownError
from starlette.responses import Response

from service.admin.services import JobId, ServicesDep, no_job
from service.admin.uploads import received
from service.http.openapi import BEARER, KEY_CODES, recorded, responses
from service.jobs.model import Job

CODES = (*KEY_CODES, "store_unavailable", "damaged_row", "internal")
BAD_UPLOAD = ("invalid_request", "invalid_dev_data", "body_too_large", "unsupported_media_type")
UPLOAD_CODES = (*BAD_UPLOAD, "conflict", "overloaded")
LOCATION: dict[str, Any] = {
    "headers": {"Location": {"description": "Path of the job.", "schema": {"type": "string"}}}
}
# The route reads its body itself.
UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/CalibrateForm"}},
            "application/json": {"schema": {"$ref": "#/components/schemas/CalibrateRequest"}},
        },
    }
}
EXAMPLES = recorded("operator_examples.json")
JOB = EXAMPLES["job"]
router = APIRouter(tags=["jobs"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="Key of the request. Requests with the same key, file and options get the same job.",
    ),
]


def _whole_number(value: object) -> object:
    """Refuse texts that Pydantic reads as integers but the contract does not allow: "6 ", "6.0", "1_0"."""
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdecimal()):
        raise PydanticKnownError("int_parsing")
    return value


def example(value: object) -> dict[str, Any]:
    """Return the OpenAPI entry of an example response."""
    return {"content": {"application/json": {"example": value}}}


def queued(job: dict[str, Any], *codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of a route that responds with a queued job. `job`: the example."""
    return {202: {**example(job), **LOCATION}, **responses(*CODES, *codes)}


def accepted(job: Job) -> Response:
    """Return a queued job as a response with its Location."""
    return Response(job.model_dump_json(), 202, {"Location": f"/jobs/{job.id}"}, "application/json")


@router.post(
    "/calibrate",
    summary="Fit a calibration on labelled prompts",
    status_code=202,
    response_model=Job,
    responses=queued(JOB, *UPLOAD_CODES),
    openapi_extra={**UPLOAD, **BEARER},
)
async def post_calibrate(
    request: Request, app: ServicesDep, idempotency_key: IdempotencyKey = None
) -> Job | Response:
    """Check every row of the dev data, store them, and start a job that draws, fits and reports.

    One bad row refuses the whole file, and nothing is stored. The error lists the first 20 bad rows by line,
    field and reason.
    """
    async with received(request, app.limits, app.threads) as upload:
        data = await app.threads.run(upload.check, app.limits)
        job, _ = await app.jobs.submit(data.rows(), upload.options, idempotency_key=idempotency_key)
    return accepted(job)


@router.get(
    "/jobs",
    summary="List the latest jobs",
    responses={200: example([JOB]), **responses(*CODES, "invalid_request")},
    openapi_extra=BEARER,
)
async def get_jobs(
    app: ServicesDep,
    limit: Annotated[
        int,
        Query(ge=1, le=1000, description="Largest number of jobs to return."),
        BeforeValidator(_whole_number),
    ] = 100,
) -> list[Job]:
    """Return jobs, latest first."""
    return await app.jobs.store.latest(limit)


@router.get(
    "/jobs/{job_id}",
    summary="Get a job",
    responses={200: example(JOB), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_job(app: ServicesDep, job_id: JobId) -> Job:
    """Return the state of a job, its progress and its results."""
    return _existing(await app.jobs.store.get(job_id))


@router.delete(
    "/jobs/{job_id}",
    summary="Cancel a job",
    responses={200: example({**JOB, "state": "cancelled"}), **responses(*CODES, "not_found", "conflict")},
    openapi_extra=BEARER,
)
async def delete_job(app: ServicesDep, job_id: JobId) -> Job:
    """Cancel an open or failed job and delete its rows. A job that has succeeded is a conflict."""
    return _existing(await app.jobs.cancel(job_id))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Retry a job",
    status_code=202,
    response_model=Job,
    responses=queued(JOB, "not_found", "conflict"),
    openapi_extra=BEARER,
)
async def post_retry(app: ServicesDep, job_id: JobId) -> Response:
    """Queue a failed job again. It keeps the answers it has and draws only the missing ones.

    If a job has succeeded without the rows that the LLM server refused, a new job asks for these rows and
    makes its own calibration. It is a conflict if nothing is missing, or if the answers were drawn with other
    settings.
    """
    return accepted(_existing(await app.jobs.queued(await app.jobs.store.retry(job_id))))


def _existing(job: Job | None) -> Job:
    if job is None:
        raise no_job()
    return job
