"""The routes under /calibrations: lists, reports, rows, corrections, activation."""

import heapq
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from service.admin.jobs import CODES, EXAMPLES, JOB, accepted, example, queued
from service.admin.services import CalibrationId, Services, ServicesDep, no_calibration
from service.calibration.calibration import (
    Activation,
    Calibration,
    CalibrationRecord,
    Method,
    Origin,
    promised_number,
)
from service.calibration.diagnostics import sizes
from service.calibration.rows import write_row
from service.errors import Conflict, NotFound
from service.http.bodies import BAD_BODY
from service.http.openapi import BEARER, json_or_page, responses
from service.http.pages import FRAMED, HTML, VARY, prefers, redirect
from service.jobs.model import CorrectionsRequest, Job
from service.scoring.score import Serving
from service.spectral.selective import CONFIDENCE, lowest_error, promise

router = APIRouter(prefix="/calibrations", tags=["calibrations"])

NDJSON = "application/x-ndjson"
MAX_VERDICTS = 1000  # of a report; the export has all
CALIBRATION, ACTIVATION = EXAMPLES["calibration"], EXAMPLES["activation"]
ROW = '{"id": "0", "prompt": "Who wrote Emma?", "reference": "Jane Austen", "samples": ["Austen", "Eliot"]}\n'
_TWO = {"rows": [{"line": 12, "correct": False}, {"id": "q31", "correct": True}]}
CORRECTIONS: dict[str, Any] = {"two rows": {"value": _TWO}}


class ParametersOut(BaseModel):
    """Parameters applied to this number of answers."""

    num_samples: int = Field(description="Number of answers.")
    temperature: float = Field(description="Matrix temperature T.")
    depolarization: float = Field(description="Depolarization g. 0 for `temperature`.")


class EvidenceParametersOut(BaseModel):
    """Evidence map for this number of answers: g = sigmoid(a + b logit u). u is the missing mass."""

    num_samples: int = Field(description="Number of answers.")
    temperature: float = Field(description="Matrix temperature T.")
    evidence_intercept: float = Field(description="Intercept a.")
    evidence_slope: float = Field(description="Slope b, 0 or more. 0: the evidence has no effect.")


class PromiseOut(BaseModel):
    """An error rate that is promised for the answers let through."""

    model_config = ConfigDict(from_attributes=True)

    num_samples: int = Field(description="Number of answers per prompt for which the promise holds.")
    target_error: float = Field(description="Largest share of wrong answers among those let through, 0..1.")
    confidence: float = Field(description="Confidence level of the promise, 0..1.")
    threshold: float = Field(description="Smallest P(correct) that is let through.")
    coverage: float = Field(description="Share of the questions that are let through, 0..1.")


class CalibrationOut(BaseModel):
    """A calibration. The fit does not change; `active`, `applies_now`, `data_kept` and `promise` can."""

    id: str = Field(description="Id of the calibration.")
    name: str = Field(description="Name of the calibration.")
    method: Method = Field(description="Map that the calibration applies.")
    temperature: float = Field(
        description="Matrix temperature T at the full number of answers. For `evidence`: T for answers "
        "without log-probabilities."
    )
    depolarization: float = Field(
        description="Depolarization g at the full number of answers. 0 for `temperature`."
    )
    num_samples: int = Field(
        description="The full number of answers: the number drawn per prompt for the fit."
    )
    parameters: list[ParametersOut] = Field(
        description="Parameters for every number of answers from 2. For `evidence`: the parameters for "
        "answers without log-probabilities."
    )
    evidence: list[EvidenceParametersOut] | None = Field(
        description="For `evidence`: parameters for every number of answers from 1. Null for other methods."
    )
    correctness_sample_counts: list[int] = Field(
        description="Numbers of answers for which the calibration has P(correct) and thresholds. Empty if "
        "the verdicts on its rows are not sufficient. The report gives the reason."
    )
    eps: float = Field(description="Null eigenvalue used to fit `temperature`.")
    fingerprint: dict[str, Any] = Field(
        description="The set-up that the calibration is bound to, part by part."
    )
    fingerprint_key: str = Field(
        description="Short hash of the fingerprint. One calibration is active per key."
    )
    created_at: datetime = Field(description="Time of the fit.")
    active: bool = Field(description="Whether the calibration is applied to requests with its fingerprint.")
    activated_at: datetime | None = Field(description="Time of the activation. Null if it is not active.")
    job_id: str | None = Field(description="Id of the job that made the calibration.")
    rows: int = Field(description="Number of rows used in the fit.")
    origin: Origin = Field(
        description="`own`: your questions. `bundled`: those that the service asks each new LLM. `both`: "
        "fewer than 100 of yours, so promises also count the bundled ones."
    )
    projection_ece: float | None = Field(
        description="Projection ECE on held-out rows, 0..1: the gap between `lambda_max` and the observed "
        "projection."
    )
    raw_projection_ece: float | None = Field(
        description="Projection ECE of raw scores on the held-out rows, 0..1."
    )
    promise: PromiseOut | None = Field(
        description="The promise of a decision with the recommended number of answers, for the configured "
        "target error (0.2 if not set). If this error cannot be promised: for the lowest possible error with "
        "this number of answers or, if it allows no promise, with another. Null if no error can be promised."
    )
    applies_now: bool = Field(
        description="Whether the calibration fits the current set-up: the LLM, its sampling and the "
        "embedder. For a caller's own answers: the embedder."
    )
    data_kept: bool = Field(description="Whether the rows are still stored.")
    links: dict[str, str] = Field(
        description="Paths: `self`, `report` and `activate`. Also `data` if the rows are stored."
    )


@router.get(
    "",
    summary="List all calibrations",
    response_model=list[CalibrationOut],
    responses={
        200: example([CALIBRATION]),
        303: {"description": "To the console, or to its sign-in, if the request prefers HTML."},
        **responses(*CODES),
    },
    openapi_extra=BEARER,
)
async def get_calibrations(
    request: Request, response: Response, app: ServicesDep
) -> list[CalibrationOut] | Response:
    """Return all calibrations, latest first. A browser is redirected to the console."""
    if prefers(request, HTML):
        return redirect(request, "console/#/calibrations")
    response.headers.update(VARY)
    return [_view(app, record) for record in await app.calibrations.list_all()]


@router.get(
    "/active",
    summary="List the active calibrations",
    responses={200: example([CALIBRATION]), **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_active(app: ServicesDep) -> list[CalibrationOut]:
    """Return the active calibration of each fingerprint, the service's own set-up first."""
    return [_view(app, record) for record in await app.calibrations.list_active()]


@router.get(
    "/activations",
    summary="List all activations",
    responses={200: example([ACTIVATION]), **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_activations(app: ServicesDep) -> list[Activation]:
    """Return all activations, newest first. Each was active until the next one with its `fingerprint_key`."""
    return await app.calibrations.history()


@router.get(
    "/{calibration_id}",
    summary="Get a calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def get_calibration(app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Return a calibration with its parameters for every number of answers."""
    return _view(app, await _record(app, calibration_id))


@router.post(
    "/{calibration_id}/activate",
    summary="Activate a calibration",
    responses={200: example(CALIBRATION), **responses(*CODES, "not_found")},
    openapi_extra=BEARER,
)
async def post_activate(request: Request, app: ServicesDep, calibration_id: CalibrationId) -> CalibrationOut:
    """Apply this calibration to requests with its fingerprint, on every replica.

    To go back, activate the previous calibration.
    """
    record = await app.calibrations.activate(calibration_id, by=request.state.caller)
    if record is None:
        raise no_calibration()
    return _view(app, record)


@router.patch(
    "/{calibration_id}/rows",
    summary="Correct verdicts on the rows, and fit again",
    status_code=202,
    response_model=Job,
    responses=queued({**JOB, "state": "queued"}, *BAD_BODY, "not_found", "conflict"),
    openapi_extra=BEARER,
)
async def patch_rows(
    app: ServicesDep,
    calibration_id: CalibrationId,
    body: Annotated[CorrectionsRequest, Body(openapi_examples=CORRECTIONS)],
) -> Response:
    """Start a job that fits another calibration on the same rows and answers, with corrected verdicts.

    No answers are drawn, and this calibration does not change. A verdict on a row without `answer` is about
    its dominant answer, which the report and the export show. An unknown row is refused with 422. Deleted
    rows are a conflict.
    """
    record = await _record(app, calibration_id)
    if record.job_id is None or not record.data_kept:
        raise Conflict("The rows of this calibration are not stored. Post them to /calibrate again.")
    if record.calibration.fingerprint.unit == "claim":
        raise Conflict(
            "The verdicts of this calibration are on claims. Correct them in the rows, and post the rows to "
            "/calibrate."
        )
    # The corrected calibration was fitted on these rows: held out, they cannot compare another with it.
    by_default = {"activate": "always" if record.active else "never"}
    sent = body.model_dump(exclude={"rows"}, exclude_none=True)
    options = by_default | sent | {"corrects": calibration_id}
    job = await app.jobs.queued(await app.jobs.store.correct(record.job_id, body.rows, options))
    if job is None:
        raise no_calibration()
    return accepted(job)


@router.get(
    "/{calibration_id}/data",
    summary="Export the rows with the drawn answers",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "JSONL that can be posted to /calibrate again.",
            "content": {NDJSON: {"schema": {"type": "string"}, "example": ROW}},
        },
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_data(app: ServicesDep, calibration_id: CalibrationId) -> StreamingResponse:
    """Export the rows that were used in the fit."""
    record = await _record(app, calibration_id)
    if not record.data_kept:
        raise NotFound("The rows of this calibration are not stored.")
    attachment = f'attachment; filename="{calibration_id}.jsonl"'
    lines = _lines(app, record)
    return StreamingResponse(lines, media_type=NDJSON, headers={"Content-Disposition": attachment})


@router.delete(
    "/{calibration_id}/data",
    summary="Delete the rows",
    status_code=204,
    responses=responses(*CODES, "not_found"),
    openapi_extra=BEARER,
)
async def delete_data(app: ServicesDep, calibration_id: CalibrationId) -> None:
    """Delete the prompts, references and answers permanently. The calibration and its report stay.

    Calibrations with corrected verdicts keep copies of the rows. Delete those, too.
    """
    if not await app.calibrations.forget_data(calibration_id):
        raise no_calibration()


@router.get(
    "/{calibration_id}/report",
    summary="Get the report as JSON or as a page with plots",
    response_class=Response,
    responses={
        200: json_or_page(
            {"content": {"application/json": {"schema": {"type": "object"}}}},
            "The fit and its data, the results before and after calibration on held-out folds, and the "
            "warnings.",
        ),
        303: {"description": "To the console's sign-in, if a browser sends no valid key."},
        **responses(*CODES, "not_found"),
    },
    openapi_extra=BEARER,
)
async def get_report(request: Request, app: ServicesDep, calibration_id: CalibrationId) -> Response:
    """Return the report as JSON, or as HTML if the request prefers it.

    The report is from the time of the fit. Only `now` (whether the calibration is active) and `verdicts` are
    current: the judged answers of its rows, at most 1,000, the most doubtful first; null once the rows are
    deleted.
    """
    report = await app.calibrations.report(calibration_id)
    if report is None:
        raise no_calibration()
    record = await _record(app, calibration_id)
    verdicts = await _verdicts(app, calibration_id) if record.data_kept else None
    since = record.activated_at
    now = {"active": record.active, "activated_at": since.isoformat() if since else None}
    report |= {"now": now, "verdicts": verdicts}
    if not prefers(request, HTML):
        return JSONResponse(report, headers=VARY)
    page = await app.computing.run(app.report_page, report)
    return Response(page, headers={**VARY, **FRAMED}, media_type=HTML)


def _view(app: Services, record: CalibrationRecord) -> CalibrationOut:
    """Return the wire form of a calibration."""
    calibration, path = record.calibration, f"/calibrations/{record.calibration.id}"
    links = {"self": path, "report": f"{path}/report", "activate": f"{path}/activate"}
    evidence = [EvidenceParametersOut(**entry) for entry in calibration.evidence_table()]
    return CalibrationOut(
        id=calibration.id,
        name=calibration.name,
        method=calibration.method,
        **asdict(calibration.headline()),
        num_samples=calibration.num_samples,
        parameters=[
            ParametersOut(num_samples=m, **asdict(map_)) for m, map_ in sorted(calibration.parameters.items())
        ],
        evidence=evidence or None,
        correctness_sample_counts=sorted(calibration.selectors),
        eps=calibration.eps,
        fingerprint=calibration.fingerprint.described(),
        fingerprint_key=calibration.fingerprint.key(),
        created_at=calibration.created_at,
        active=record.active,
        activated_at=record.activated_at,
        job_id=record.job_id,
        rows=record.num_rows,
        projection_ece=record.projection_ece,
        raw_projection_ece=record.raw_projection_ece,
        promise=_promise(calibration, app.serving),
        applies_now=app.applies_now(calibration.fingerprint),
        data_kept=record.data_kept,
        origin=record.calibration.origin,
        links=links | ({"data": f"{path}/data"} if record.data_kept else {}),
    )


def _promise(calibration: Calibration, serving: Serving) -> PromiseOut | None:
    """Return the promise of the report's opening: at the target error with the recommended number of answers.

    If this error cannot be promised: at the lowest possible error with this number or, if it allows no
    promise, with another.
    """
    lowest = {
        number: error
        for number in (0, *sizes(calibration.num_samples))
        if (selector := calibration.selectors.get(number)) is not None
        and not selector.is_bundled
        and (error := lowest_error(selector.counts, CONFIDENCE)) is not None
    }
    if not lowest:
        return None
    drawn = calibration.num_samples if calibration.recommended is None else calibration.recommended
    number = promised_number(lowest, drawn)
    error = max(serving.target().error, lowest[number])
    made = promise(calibration.selectors[number].counts, error, CONFIDENCE)
    return PromiseOut.model_validate({"num_samples": number, **asdict(made)})


async def _verdicts(app: Services, calibration_id: str) -> dict[str, Any]:
    """Return the number of verdicts and the rows of the most doubtful ones, in the form of a report."""
    most_doubtful: list[tuple[int, int, dict[str, Any]]] = []  # by doubt, then by line
    count = 0
    async for row in app.calibrations.rows(calibration_id):
        if row.verdict is None:
            continue
        count += 1
        part = {"line": row.line, "id": row.id, "question": row.question, "references": list(row.references)}
        entry = (row.verdict.doubt(row.references), -row.line, part | asdict(row.verdict))
        if len(most_doubtful) < MAX_VERDICTS:
            heapq.heappush(most_doubtful, entry)
        else:
            heapq.heappushpop(most_doubtful, entry)
    return {"count": count, "rows": [part for *_, part in sorted(most_doubtful, reverse=True)]}


async def _record(app: Services, calibration_id: str) -> CalibrationRecord:
    record = await app.calibrations.record(calibration_id)
    if record is None:
        raise no_calibration()
    return record


async def _lines(app: Services, record: CalibrationRecord) -> AsyncIterator[bytes]:
    async for row in app.calibrations.rows(record.calibration.id):
        if row.usable(record.calibration.fingerprint.unit):
            yield write_row(row)
