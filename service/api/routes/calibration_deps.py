"""What the routes of jobs and calibrations work with: wired by the factory, found on the app's state."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from service.api.http.upload_threads import UploadThreads
from service.domain.devdata.reader import UploadLimits
from service.domain.errors import NotFound
from service.domain.jobs.model import CalibrationStore, JobQueue

_ID = re.compile(r"(job|cal)_[0-9A-Z]{26}\Z")


def no_page(_: object) -> str:
    """Return an empty page."""
    return ""


@dataclass(frozen=True, slots=True)
class CalibrationServices:
    """The ports behind the routes.

    `render_report` makes the HTML page of a report, which may take seconds; `render_calibrations` that of all
    calibrations as they are sent.
    """

    jobs: JobQueue
    calibrations: CalibrationStore
    limits: UploadLimits
    render_report: Callable[[Mapping[str, Any]], str]
    render_calibrations: Callable[[Sequence[Mapping[str, Any]]], str] = no_page
    threads: UploadThreads = field(default_factory=UploadThreads)


async def calibration_services(request: Request) -> CalibrationServices:
    """Return the services of the application that got the request."""
    found: CalibrationServices = request.app.state.calibration_services
    return found


def no_job() -> NotFound:
    """Return the error for a job that is not there."""
    return NotFound("No job has this id.")


def no_calibration() -> NotFound:
    """Return the error for a calibration that is not there."""
    return NotFound("No calibration has this id.")


def _job_id(job_id: Annotated[str, Path(description="Id of a job.")]) -> str:
    # Refused by its form: a database may choke on characters that no id has.
    if not _ID.match(job_id):
        raise no_job()
    return job_id


def _calibration_id(calibration_id: Annotated[str, Path(description="Id of a calibration.")]) -> str:
    if not _ID.match(calibration_id):
        raise no_calibration()
    return calibration_id


ServicesDep = Annotated[CalibrationServices, Depends(calibration_services)]
JobId = Annotated[str, Depends(_job_id)]
CalibrationId = Annotated[str, Depends(_calibration_id)]
