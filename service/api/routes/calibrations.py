"""Calibrations: list, activate, export, report."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from service.api.http.auth import BEARER, admin_scope
from service.api.http.deps import CalibrationId, Services, ServicesDep, no_calibration
from service.api.http.headers import VARY, prefers_html
from service.api.http.openapi import json_or_page, responses
from service.api.routes.calibration_schemas import (
    CALIBRATION,
    ROW,
    CalibrationOut,
    calibration_view,
    state_now,
)
from service.api.routes.submission import CODES, example
from service.domain.devdata.row_check import write_row
from service.domain.errors import EigencalError, NotFound
from service.domain.jobs.model import CalibrationRecord

log = logging.getLogger(__name__)
router = APIRouter(prefix="/calibrations", tags=["calibrations"], dependencies=[Depends(admin_scope)])
NDJSON = "application/x-ndjson"


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
    found = [calibration_view(record) for record in await app.calibrations.list_all()]
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
    return [calibration_view(record) for record in await app.calibrations.list_active()]


@router.get(
    "/{calibration_id}",
    summary="A calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_calibration(app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Return a calibration with its parameters for every number of answers."""
    return calibration_view(await _record(app, calibration_id))


@router.post(
    "/{calibration_id}/activate",
    summary="Serve with this calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def post_activate(app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Serve requests of its fingerprint with this calibration, on every replica; also the way back."""
    record = await app.calibrations.activate(calibration_id)
    if record is None:
        raise no_calibration()
    return calibration_view(record)


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

    All of it is as it was when the calibration was made, but for `now`: whether it is active.
    """
    report = await app.calibrations.report(calibration_id)
    if report is None:
        raise no_calibration()
    now = state_now(await _record(app, calibration_id))
    return await report_response(request, app, {**report, "now": now})


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
