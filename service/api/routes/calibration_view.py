"""From stored calibrations and jobs to their wire forms."""

from typing import Any

from service.api.routes.calibration_schemas import CalibrationOut, JobOut, ParametersOut
from service.domain.jobs.model import CalibrationRecord, Job


def job_view(job: Job) -> JobOut:
    """Return a job as it is sent."""
    fields = {name: getattr(job, name) for name in JobOut.model_fields if name != "links"}
    return JobOut.model_validate({**fields, "links": job_links(job)}, from_attributes=True)


def job_links(job: Job) -> dict[str, str]:
    """Return the paths of a job, and of what came of it."""
    path = f"/jobs/{job.id}"
    links = {"self": path, "events": f"{path}/events"}
    if job.state != "succeeded":
        return links
    if job.kind == "evaluate":
        return {**links, "report": f"/evaluations/{job.id}/report"}
    made = f"/calibrations/{job.calibration_id}"
    return {**links, "calibration": made, "report": f"{made}/report"}


def calibration_links(record: CalibrationRecord) -> dict[str, str]:
    """Return the paths of a calibration."""
    path = f"/calibrations/{record.calibration.id}"
    links = {"self": path, "report": f"{path}/report", "activate": f"{path}/activate"}
    return {**links, "data": f"{path}/data"} if record.data_kept else links


def state_now(record: CalibrationRecord) -> dict[str, Any]:
    """Return whether a calibration is active, as its report says it (`report_model.Now`)."""
    since = record.activated_at
    return {"active": record.active, "activated_at": since.isoformat() if since else None}


def calibration_view(record: CalibrationRecord) -> CalibrationOut:
    """Return a calibration as it is sent."""
    calibration = record.calibration
    parameters = [
        ParametersOut(num_samples=m, temperature=p.temperature, depolarization=p.depolarization)
        for m, p in sorted(calibration.parameters.items())
    ]
    headline = calibration.headline()
    return CalibrationOut(
        id=calibration.id,
        name=calibration.name,
        method=calibration.method,
        temperature=headline.temperature,
        depolarization=headline.depolarization,
        num_samples=calibration.num_samples,
        parameters=parameters,
        eps=calibration.eps,
        fingerprint=calibration.fingerprint.parts(),
        fingerprint_key=calibration.fingerprint.key(),
        created_at=calibration.created_at,
        active=record.active,
        activated_at=record.activated_at,
        job_id=record.job_id,
        num_rows=record.num_rows,
        data_kept=record.data_kept,
        links=calibration_links(record),
    )
