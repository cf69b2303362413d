"""POST /calibrate, and the jobs that it starts."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from service.api.http.auth import BEARER, admin_scope
from service.api.http.deps import JobId, ServicesDep, no_job
from service.api.http.openapi import responses
from service.api.http.upload_contents import CALIBRATE
from service.api.http.uploads import in_threads
from service.api.routes.job_schemas import JOB, JobOut, job_view
from service.api.routes.submission import (
    CODES,
    UPLOAD_CODES,
    IdempotencyKey,
    accepted,
    example,
    queued,
    submitted,
    upload_body,
)
from service.domain.jobs.model import Job

router = APIRouter(tags=["jobs"], dependencies=[Depends(admin_scope)])
PING_S = 15


@router.post(
    "/calibrate",
    summary="Fit a calibration on labelled prompts",
    status_code=202,
    response_model=JobOut,
    responses=queued(JOB, *UPLOAD_CODES),
    openapi_extra={**upload_body("Calibrate"), **BEARER},
)
async def post_calibrate(
    request: Request, app: ServicesDep, idempotency_key: IdempotencyKey = None
) -> JobOut | Response:
    """Check every row of the dev data, store them, and start a job that draws, fits and reports.

    A bad row refuses the whole file: the first 20 are listed by line, field and reason; nothing is stored.
    """
    return await submitted(
        request,
        app,
        CALIBRATE,
        idempotency_key,
        lambda upload, parts: (in_threads(parts[0], app.threads), upload.options),
    )


@router.get(
    "/jobs",
    summary="The latest jobs",
    responses={200: example([JOB]), **responses(*CODES, "invalid_request")},
    openapi_extra=BEARER,
)
async def get_jobs(
    app: ServicesDep, limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 100
) -> list[JobOut]:
    """Return jobs, latest first."""
    return [job_view(job) for job in await app.jobs.latest(limit=limit)]


@router.get(
    "/jobs/{job_id}",
    summary="A job",
    responses={200: example(JOB), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_job(app: ServicesDep, job_id: JobId) -> JobOut:
    """Return the state of a job, how far it is, and what came of it."""
    return job_view(_found(await app.jobs.get(job_id)))


@router.delete(
    "/jobs/{job_id}",
    summary="Cancel a job",
    responses={200: example({**JOB, "state": "cancelled"}), **responses(*CODES, "not_found", "conflict")},
    openapi_extra=BEARER,
)
async def delete_job(app: ServicesDep, job_id: JobId) -> JobOut:
    """Cancel a job, or give up one that has failed, and forget its rows.

    One that has succeeded is a conflict.
    """
    return job_view(_found(await app.jobs.cancel(job_id)))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Ask again for what a job lacks",
    status_code=202,
    response_model=JobOut,
    responses=queued(JOB, "not_found", "conflict"),
    openapi_extra=BEARER,
)
async def post_retry(app: ServicesDep, job_id: JobId) -> Response:
    """Queue a job that has failed again; it goes on with the answers it has, and draws none of them twice.

    Of one that has succeeded without rows that the LLM server refused, another job asks for these, and makes
    a calibration of its own. A conflict where nothing is missing, or where its answers were drawn under other
    settings.
    """
    return accepted(_found(await app.jobs.retry(job_id)))


@router.get(
    "/jobs/{job_id}/events",
    summary="A job as it goes on",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Events named `job`, each with the whole job; the last has its final state.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_events(app: ServicesDep, job_id: JobId) -> EventSourceResponse:
    """Send the job now and whenever it changes, as server-sent events, until it ends."""
    _found(await app.jobs.get(job_id))
    return EventSourceResponse(_events(app.jobs.events(job_id)), ping=PING_S)


async def _events(jobs: AsyncIterator[Job]) -> AsyncIterator[ServerSentEvent]:
    try:
        async for job in jobs:
            yield ServerSentEvent(job_view(job).model_dump_json(), event="job")
    finally:
        if isinstance(jobs, AsyncGenerator):  # the caller has gone: stop watching now, not when collected
            await jobs.aclose()


def _found(job: Job | None) -> Job:
    if job is None:
        raise no_job()
    return job
