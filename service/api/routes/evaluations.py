"""POST /evaluate, and what came of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from service.api.http.auth import BEARER, admin_scope
from service.api.http.deps import JobId, ServicesDep
from service.api.http.headers import prefers_html
from service.api.http.openapi import responses
from service.api.http.upload_contents import EVALUATE
from service.api.http.uploads import UploadThreads, in_threads, received
from service.api.routes.calibration_examples import JOB, LOCATION
from service.api.routes.calibration_schemas import JobOut
from service.api.routes.calibration_view import job_view
from service.api.routes.jobs import CLIENT_CLOSED_REQUEST, CODES, UPLOAD_CODES, IdempotencyKey, example
from service.domain.devdata.reader import DevData
from service.domain.errors import NotFound
from service.domain.jobs.model import DevRow

router = APIRouter(tags=["evaluations"], dependencies=[Depends(admin_scope)])
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/EvaluateForm"}},
            "application/json": {"schema": {"$ref": "#/components/schemas/EvaluateRequest"}},
        },
    }
}
REPORT: dict[str, Any] = {
    "description": "Every experiment with its figures, and what could not be run.",
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "text/html": {"schema": {"type": "string"}},
    },
}


@router.post(
    "/evaluate",
    summary="Reproduce the experiments on labelled prompts",
    status_code=202,
    response_model=JobOut,
    responses={202: {**example({**JOB, "kind": "evaluate"}), **LOCATION}, **responses(*CODES, *UPLOAD_CODES)},
    openapi_extra={**UPLOAD, **BEARER},
)
async def post_evaluate(
    request: Request, app: ServicesDep, idempotency_key: IdempotencyKey = None
) -> JobOut | Response:
    """Check every row of both files, store them, and start a job: fit on dev, test on test.

    Either file's bad rows refuse both; nothing is stored. Nothing is calibrated or activated by it.
    """
    try:
        async with received(request, app.limits, app.threads, EVALUATE) as upload:
            dev, test = await app.threads.run(lambda: upload.check(app.limits))
            options = replace(upload.options, dev_rows=dev.num_rows)
            rows = _numbered([dev, test], app.threads)
            job, _ = await app.jobs.submit(rows, options, idempotency_key=idempotency_key)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    content = job_view(job).model_dump_json()
    return Response(content, 202, {"Location": f"/jobs/{job.id}"}, "application/json")


async def _numbered(files: Sequence[DevData], threads: UploadThreads) -> AsyncIterator[DevRow]:
    """Yield the rows of both files under one count, which tells them apart."""
    number = 0
    for data in files:
        async for row in in_threads(data, threads):
            number += 1
            yield replace(row, line=number)


@router.get(
    "/evaluations/{job_id}/report",
    summary="The report of an evaluation: JSON, or a page with the figures",
    response_class=Response,
    responses={200: REPORT, **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_evaluation(request: Request, app: ServicesDep, job_id: JobId) -> Response:
    """Return the report in the form that is accepted: JSON unless HTML is preferred."""
    results = await app.jobs.evaluation(job_id)
    if results is None:
        raise NotFound("No finished evaluation has this id.")
    vary = {"Vary": "Accept"}
    if not prefers_html(request.headers.get("accept", "*/*")):
        return JSONResponse(results, headers=vary)
    page = await asyncio.to_thread(app.pages.report, results)
    return Response(page, headers=vary, media_type="text/html")
