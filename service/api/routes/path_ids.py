"""The ids in the paths of jobs and calibrations, and the errors for those that are not there."""

import re
from typing import Annotated

from fastapi import Depends, Path

from service.domain.errors import NotFound

_ID = re.compile(r"(job|cal)_[0-9A-Z]{26}\Z")


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


JobId = Annotated[str, Depends(_job_id)]
CalibrationId = Annotated[str, Depends(_calibration_id)]
