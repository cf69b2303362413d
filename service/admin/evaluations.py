"""POST /evaluate, and the report of an evaluation."""

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from service.admin.calibrations import report_entry, report_response
from service.admin.jobs import CODES, JOB, UPLOAD_CODES, IdempotencyKey, queued, submitted, upload_body
from service.admin.services import JobId, ServicesDep
from service.admin.uploads import EVALUATE
from service.api.auth import BEARER, admin_scope
from service.api.openapi import responses
from service.errors import NotFound
from service.jobs.model import Job

router = APIRouter(tags=["evaluations"], dependencies=[Depends(admin_scope)])


@router.post(
    "/evaluate",
    summary="Reproduce the experiments on labelled prompts",
    status_code=202,
    response_model=Job,
    responses=queued({**JOB, "kind": "evaluate"}, *UPLOAD_CODES),
    openapi_extra={**upload_body("Evaluate"), **BEARER},
)
async def post_evaluate(
    request: Request, app: ServicesDep, idempotency_key: IdempotencyKey = None
) -> Job | Response:
    """Check every row of both files, store them, and start a job that fits on dev and tests on test.

    One bad row in either file refuses both files, and nothing is stored. The job makes and activates no
    calibration.
    """
    return await submitted(request, app, EVALUATE, idempotency_key)


@router.get(
    "/evaluations/{job_id}/report",
    summary="Get the report of an evaluation as JSON or as a page with figures",
    response_class=Response,
    responses={
        200: report_entry("All experiments with their figures, and the experiments that could not be run."),
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_evaluation(request: Request, app: ServicesDep, job_id: JobId) -> Response:
    """Return the report as JSON, or as HTML if the request prefers it."""
    results = await app.jobs.store.evaluation(job_id)
    if results is None:
        raise NotFound("No finished evaluation has this id.")
    return await report_response(request, app, results)
