"""Calibrations: list, activate, export, report."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any, cast

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from service.api.http.auth import BEARER, admin_scope
from service.api.http.bodies import BAD_BODY, read_json
from service.api.http.deps import CalibrationId, Services, ServicesDep, no_calibration
from service.api.http.headers import VARY, prefers_html
from service.api.http.openapi import json_body, json_or_page, responses
from service.api.routes.calibration_schemas import (
    ACTIVATION,
    CALIBRATION,
    LOWEST,
    ROW,
    ActivationOut,
    CalibrationOut,
    CorrectionsRequest,
    calibration_view,
    state_now,
)
from service.api.routes.job_schemas import JOB, JobOut
from service.api.routes.submission import CODES, accepted, example, queued
from service.domain.devdata.row_check import write_row
from service.domain.errors import Conflict, EigencalError, NotFound
from service.domain.jobs.model import CalibrationRecord, Correction
from service.domain.scoring.judgement import Target
from service.domain.study.report_model import VerdictRow, VerdictsPart

log = logging.getLogger(__name__)
router = APIRouter(prefix="/calibrations", tags=["calibrations"], dependencies=[Depends(admin_scope)])
NDJSON = "application/x-ndjson"
MAX_VERDICTS = 1000  # of a report; the export has all
CORRECTIONS = {"two rows": {"rows": [{"line": 12, "correct": False}, {"id": "q31", "correct": True}]}}


def report_entry(description: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a report: JSON, or a page."""
    model = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return json_or_page(model, description)


async def report_response(request: Request, app: Services, report: Mapping[str, Any]) -> Response:
    """Return a report in the form that is accepted: JSON unless HTML is preferred."""
    if not prefers_html(request.headers.get("accept", "*/*")):
        return JSONResponse(report, headers=VARY)
    page = await asyncio.to_thread(app.pages.report, report)
    return Response(page, headers=VARY, media_type="text/html")


class Export(StreamingResponse):
    """A stream that an error of ours breaks off: no last chunk, so that nobody takes it for whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; the server closes the connection of one that does not end."""
        try:
            await super().__call__(scope, receive, send)
        except EigencalError as error:
            log.warning("request %s was broken off: %s", scope.get("eigencal.request_id"), error.detail)


@router.get(
    "",
    summary="All calibrations",
    response_model=list[CalibrationOut],
    responses={
        200: json_or_page(example([CALIBRATION]), "Latest first: JSON, or a page for people."),
        **responses(*CODES),
    },
    openapi_extra=BEARER,
)
async def get_calibrations(
    request: Request, response: Response, app: ServicesDep
) -> list[CalibrationOut] | Response:
    """Return calibrations, latest first: JSON unless HTML is preferred."""
    found = [_view(app, record) for record in await app.calibrations.list_all()]
    if prefers_html(request.headers.get("accept", "*/*")):
        told = [one.model_dump(mode="json") for one in found]
        page = await asyncio.to_thread(app.pages.calibrations, told)
        return Response(page, headers=VARY, media_type="text/html")
    response.headers.update(VARY)
    return found


@router.get(
    "/active",
    summary="The calibrations in force",
    responses={200: example([CALIBRATION]), **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_active(app: ServicesDep) -> list[CalibrationOut]:
    """Return one calibration per fingerprint, the service's own set-up first."""
    return [_view(app, record) for record in await app.calibrations.list_active()]


@router.get(
    "/activations",
    summary="What was in force when",
    responses={200: example([ACTIVATION]), **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_activations(app: ServicesDep) -> list[ActivationOut]:
    """Return every activation, newest first: each was in force until the next of its `fingerprint_key`."""
    return [ActivationOut.model_validate(one) for one in await app.calibrations.history()]


@router.get(
    "/{calibration_id}",
    summary="A calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_calibration(app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Return a calibration with its parameters for every number of answers."""
    return _view(app, await _record(app, calibration_id))


@router.post(
    "/{calibration_id}/activate",
    summary="Serve with this calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def post_activate(request: Request, app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Serve requests of its fingerprint with this calibration, on every replica; also the way back."""
    record = await app.calibrations.activate(calibration_id, by=request.state.by)
    if record is None:
        raise no_calibration()
    return _view(app, record)


@router.patch(
    "/{calibration_id}/rows",
    summary="Correct verdicts on its rows",
    status_code=202,
    response_model=JobOut,
    responses=queued({**JOB, "state": "queued"}, *BAD_BODY, "not_found", "conflict"),
    openapi_extra={**json_body("CorrectionsRequest", CORRECTIONS), **BEARER},
)
async def patch_rows(request: Request, app: ServicesDep, calibration_id: CalibrationId) -> Response:
    """Start a job that fits another calibration on the same rows and answers, with corrected verdicts.

    Nothing is drawn, and this calibration stays as it is. A verdict on a row without `answer` is about its
    dominant answer, which the report and the export name. A row that is not there is a 422; rows that were
    forgotten are a conflict.
    """
    body = await read_json(request, CorrectionsRequest)
    record = await _record(app, calibration_id)
    if record.job_id is None or not record.data_kept:
        raise Conflict("The rows of this calibration are not kept: post them again to /calibrate.")
    # The corrected calibration was fitted on these rows: held out, they cannot compare another with it.
    by_default = {"activate": "always" if record.active else "never"}
    options = by_default | body.model_dump(exclude={"rows"}, exclude_none=True)
    corrections = [Correction(one.correct, one.line, one.id) for one in body.rows]
    job = await app.jobs.correct(record.job_id, corrections, options)
    if job is None:
        raise no_calibration()
    return accepted(job)


@router.get(
    "/{calibration_id}/data",
    summary="Its rows with the answers drawn",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "JSONL that may be posted to /calibrate again.",
            "content": {NDJSON: {"schema": {"type": "string"}, "example": ROW}},
        },
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_data(app: ServicesDep, calibration_id: CalibrationId) -> StreamingResponse:
    """Export the rows that the calibration was fitted on."""
    record = await _record(app, calibration_id)
    if not record.data_kept:
        raise NotFound("The data of this calibration are not kept.")
    attachment = f'attachment; filename="{calibration_id}.jsonl"'
    lines = _lines(app, calibration_id, record.num_rows)
    return Export(lines, media_type=NDJSON, headers={"Content-Disposition": attachment})


@router.delete(
    "/{calibration_id}/data",
    summary="Forget its rows",
    status_code=204,
    responses=responses(*CODES, "not_found"),
    openapi_extra=BEARER,
)
async def delete_data(app: ServicesDep, calibration_id: CalibrationId) -> None:
    """Delete the prompts, references and answers for good. The calibration and its report stay."""
    if not await app.calibrations.forget_data(calibration_id):
        raise no_calibration()


@router.get(
    "/{calibration_id}/report",
    summary="Its report: JSON, or a page with the plots",
    response_class=Response,
    responses={
        200: report_entry(
            "What was fitted on what, before and after on held-out folds, the curves, the warnings."
        ),
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_report(request: Request, app: ServicesDep, calibration_id: CalibrationId) -> Response:
    """Return the report in the form that is accepted: JSON unless HTML is preferred.

    All of it is as it was when the calibration was made, but for `now`, whether it is active, and `verdicts`,
    its rows with what was judged, null once they are forgotten.
    """
    report = await app.calibrations.report(calibration_id)
    if report is None:
        raise no_calibration()
    record = await _record(app, calibration_id)
    verdicts = await _verdicts(app, calibration_id) if record.data_kept else None
    return await report_response(request, app, {**report, "now": state_now(record), "verdicts": verdicts})


def _view(app: Services, record: CalibrationRecord) -> CalibrationOut:
    error = app.serving.target_error
    target = Target(LOWEST if error is None else error, app.serving.confidence)
    applies = app.applies_now(record.calibration.fingerprint)
    return calibration_view(record, target=target, applies_now=applies)


async def _verdicts(app: Services, calibration_id: str) -> VerdictsPart:
    """Return the rows with their verdicts: how many there are, and the first of them."""
    rows: list[VerdictRow] = []
    count = 0
    async for row in app.calibrations.rows(calibration_id):
        if row.verdict is None:
            continue
        count += 1
        if len(rows) < MAX_VERDICTS:
            told = {"line": row.line, "id": row.id, "references": list(row.references)}
            rows.append(cast("VerdictRow", told | asdict(row.verdict)))
    return {"count": count, "rows": rows}


async def _record(app: Services, calibration_id: str) -> CalibrationRecord:
    record = await app.calibrations.record(calibration_id)
    if record is None:
        raise no_calibration()
    return record


async def _lines(app: Services, calibration_id: str, expected: int) -> AsyncIterator[bytes]:
    sent = 0
    async for row in app.calibrations.rows(calibration_id):
        if row.usable():
            yield write_row(row)
            sent += 1
    if sent < expected:  # deleted meanwhile: a body broken off is no whole export
        raise NotFound("The data of this calibration were deleted while they were exported.")
