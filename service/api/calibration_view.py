"""From stored calibrations and jobs to their wire forms."""

from service.api.calibration_schemas import CalibrationOut, JobOut, ParametersOut
from service.domain.jobs import CalibrationRecord, Job


def job_view(job: Job) -> JobOut:
    """Return a job as it is sent."""
    return JobOut.model_validate(job, from_attributes=True)


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
    )
