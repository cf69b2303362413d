"""Calls that start jobs and follow them."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from eigencal._calls.call import Call, header, path, reader, without_none
from eigencal._calls.repeat import Repeat
from eigencal._models.jobs import Job
from eigencal._models.requests import Correction
from eigencal._sending.uploads import Rows, Upload

_JOB = reader(Job)
_JOBS = reader(tuple[Job, ...])


def calibrate(data: Rows, options: Mapping[str, Any], idempotency_key: str | None) -> Call[Job]:
    """POST /calibrate."""
    return _submission("/calibrate", {"file": data}, options, idempotency_key)


def evaluate(dev: Rows, test: Rows, options: Mapping[str, Any], idempotency_key: str | None) -> Call[Job]:
    """POST /evaluate."""
    return _submission("/evaluate", {"dev": dev, "test": test}, options, idempotency_key)


def _submission(
    where: str, files: Mapping[str, Rows], options: Mapping[str, Any], key: str | None
) -> Call[Job]:
    # One key for all attempts of this call: whatever breaks off, there is one job.
    headers = header("Idempotency-Key", key or uuid.uuid4().hex)
    fields = {name: str(value) for name, value in without_none(options).items()}
    return Call("POST", where, _JOB, headers=headers, upload=Upload(files, fields))


def correct_rows(calibration_id: str, rows: Iterable[Correction], options: Mapping[str, Any]) -> Call[Job]:
    """PATCH /calibrations/{calibration_id}/rows: each makes a job, so it is made again only if unseen."""
    where = path("/calibrations/{id}/rows", id=calibration_id)
    return Call("PATCH", where, _JOB, {"rows": list(rows), **without_none(options)}, repeat=Repeat.UNSEEN)


def jobs(limit: int) -> Call[tuple[Job, ...]]:
    """GET /jobs."""
    return Call("GET", "/jobs", _JOBS, query={"limit": str(limit)})


def job(job_id: str) -> Call[Job]:
    """GET /jobs/{job_id}."""
    return Call("GET", path("/jobs/{id}", id=job_id), _JOB)


def cancel(job_id: str) -> Call[Job]:
    """DELETE /jobs/{job_id}: cancelling twice is no error."""
    return Call("DELETE", path("/jobs/{id}", id=job_id), _JOB)


def retry(job_id: str) -> Call[Job]:
    """POST /jobs/{job_id}/retry: a second one is a conflict, so it is made again only if nothing saw it."""
    return Call("POST", path("/jobs/{id}/retry", id=job_id), _JOB, repeat=Repeat.UNSEEN)


def events(job_id: str) -> Call[Job]:
    """GET /jobs/{job_id}/events: a stream; `read` is not used."""
    headers = {"Accept": "text/event-stream"}
    return Call("GET", path("/jobs/{id}/events", id=job_id), _JOB, headers=headers)
