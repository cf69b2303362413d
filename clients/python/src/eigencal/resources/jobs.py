"""Calibration jobs."""

import asyncio
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

import stamina

from eigencal._base_client import (
    AsyncAPIClient,
    Call,
    Rows,
    SyncAPIClient,
    awaited,
    format_path,
    retry_policy,
    seconds,
    without_none,
)
from eigencal._exceptions import (
    APIConnectionError,
    APITimeoutError,
    EigencalError,
    JobEndedError,
    RateLimitError,
)
from eigencal._progress import Progress, as_callback
from eigencal._requests import CalibrateOptions, Correction, CorrectOptions
from eigencal._results import Job

PATIENCE_S = 300.0
SILENCE_S = 30.0  # without a response for this long, the service counts as unavailable
LONGEST_WAIT_S = 20.0


def _upload_call(
    path: str, files: Mapping[str, Rows], options: Mapping[str, Any], key: str | None
) -> Call[Job]:
    # All attempts of this call share a key, so that only one job is created.
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    fields = {name: str(value) for name, value in without_none(options).items()}
    return Call("POST", path, Job, fields, files=files, headers=headers)


def _job_call(method: str, job_id: str) -> Call[Job]:
    return Call(method, format_path("/jobs/{}", job_id), Job)


def _is_passing(error: EigencalError) -> bool:
    """Return True for transient errors. Timeouts are included: a proxy may hide a missing service."""
    return isinstance(error, APIConnectionError | RateLimitError) or error.status in (502, 503, 504)


class _Following:
    """State of waiting for a job: when to poll it, and how long the service may be unavailable."""

    def __init__(self, job_id: str, timeout_s: float | None, progress: Progress) -> None:
        self.call = _job_call("GET", job_id)
        self._ends_at = math.inf if timeout_s is None else time.monotonic() + seconds(timeout_s)
        self._report = as_callback(progress)
        self._reported: tuple[int, int, str] | None = None

    def pauses(self) -> Iterator[float]:
        """Yield the seconds between two polls: 0.1 at first, then up to 2. Raises APITimeoutError."""
        pause_s = 0.1
        while (left_s := self._ends_at - time.monotonic()) > 0:
            yield min(pause_s, left_s)
            pause_s = min(1.3 * pause_s, 2.0)
        raise APITimeoutError("The job has not ended in the time given; it goes on.")

    def retry_policy(self) -> dict[str, Any]:
        """Return the retry policy for an unavailable service, starting now."""
        last_start = min(time.monotonic() + PATIENCE_S, self._ends_at)
        return retry_policy(_is_passing, last_start, attempts=None, longest_wait_s=LONGEST_WAIT_S)

    def next_end(self) -> float:
        """Return the deadline of the next response (monotonic clock)."""
        return min(time.monotonic() + SILENCE_S, self._ends_at)

    def has_ended(self, job: Job) -> bool:
        """Report progress and return True if the job succeeded. Raises JobEndedError if it failed."""
        stage = (job.done, job.total, job.stage or job.state)
        if stage != self._reported:
            self._reported = stage
            self._report(*stage)
        if job.state == "cancelled":
            raise JobEndedError(f"The job {job.id} was cancelled.", code="job_cancelled")
        if job.state == "failed":
            code, detail = (job.error.code, job.error.detail) if job.error else (None, "it does not say why")
            raise JobEndedError(f"The job {job.id} failed: {detail}", code=code)
        return job.succeeded


class Jobs(SyncAPIClient):
    """Calls that start jobs and follow them. They need the admin key, if one is set."""

    def calibrate(
        self,
        data: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[CalibrateOptions],
    ) -> Job:
        """Upload labelled prompts and start a job that fits a calibration on them.

        The data are copied to a temporary file and never held in memory.

        Args:
            data: A path (JSONL or CSV in UTF-8), an open file in one of these formats, or mappings.
            idempotency_key: Your own key, to repeat the upload in a later call and get the same job.
            timeout_s: Time limit of the whole upload in seconds; None: the client's.
            **options: See `CalibrateOptions`.

        Returns:
            The queued job. After `wait`, its `calibration_id` is the id of the new calibration.

        Raises:
            UnprocessableEntityError: Rows are invalid (code `invalid_dev_data`): `errors` lists line, field
                and reason. Nothing was stored.
            InvalidSetupError: The file cannot be read.
            ConflictError: The `idempotency_key` was used with other data.
        """
        call = _upload_call("/calibrate", {"file": data}, options, idempotency_key)
        return self._send(call, timeout_s)

    def correct_rows(
        self,
        calibration_id: str,
        rows: Iterable[Correction],
        *,
        timeout_s: float | None = None,
        **options: Unpack[CorrectOptions],
    ) -> Job:
        """Start a job that calibrates on the same rows and answers, with corrected verdicts.

        Args:
            calibration_id: Id of the calibration, which does not change.
            rows: The corrected rows, by `line` or `id`, and whether the judged answer is `correct`.
            timeout_s: See `Client`.
            **options: Options of the new calibration; others are taken from the old one.

        Raises:
            UnprocessableEntityError: A row does not exist.
            ConflictError: The rows were deleted, or sampled under other settings.
        """
        path = format_path("/calibrations/{}/rows", calibration_id)
        body = {"rows": list(rows), **without_none(options)}
        return self._send(Call("PATCH", path, Job, body, is_idempotent=False), timeout_s)  # not idempotent

    def wait(self, job_id: str, *, progress: Progress = False, timeout_s: float | None = None) -> Job:
        """Wait until a job succeeds, and return it.

        The job and the waiting survive a restart of the service.

        Args:
            job_id: Id of the job.
            progress: True: show progress on stderr; or a callback (done, total, stage).
            timeout_s: Maximum wait in seconds; None: no limit. The job goes on after a timeout.

        Raises:
            JobEndedError: The job failed or was cancelled; `code` and `detail` give the reason.
            APITimeoutError: The job did not end within `timeout_s`.
            APIConnectionError: The service was unavailable for five minutes.
        """
        following = _Following(job_id, timeout_s, progress)
        for pause_s in following.pauses():
            for attempt in stamina.retry_context(**following.retry_policy()):
                with attempt:
                    job = self._attempt(following.call, following.next_end(), {})
            if following.has_ended(job):
                break
            time.sleep(pause_s)
        return job

    def jobs(self, limit: int = 100, *, timeout_s: float | None = None) -> tuple[Job, ...]:
        """Return the latest jobs, newest first. `limit`: maximum number of jobs, 1..1000."""
        return self._send(Call("GET", f"/jobs?limit={limit}", tuple[Job, ...]), timeout_s)

    def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Return a job with its state, progress and result. Raises NotFoundError."""
        return self._send(_job_call("GET", job_id), timeout_s)

    def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Cancel a job, or abandon a failed one, and delete its rows. Raises ConflictError."""
        return self._send(_job_call("DELETE", job_id), timeout_s)

    def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Queue a failed job again; it keeps the answers sampled so far. Raises ConflictError."""
        call = Call("POST", format_path("/jobs/{}/retry", job_id), Job, is_idempotent=False)
        return self._send(call, timeout_s)  # a repeated call raises ConflictError


class AsyncJobs(AsyncAPIClient):
    """The asynchronous version of `Jobs`."""

    calibrate = awaited(Jobs.calibrate)
    correct_rows = awaited(Jobs.correct_rows)
    jobs = awaited(Jobs.jobs)
    job = awaited(Jobs.job)
    cancel = awaited(Jobs.cancel)
    retry = awaited(Jobs.retry)

    async def wait(self, job_id: str, *, progress: Progress = False, timeout_s: float | None = None) -> Job:
        """Wait until a job succeeds. See `Client.wait`."""
        following = _Following(job_id, timeout_s, progress)
        for pause_s in following.pauses():
            async for attempt in stamina.retry_context(**following.retry_policy()):
                with attempt:
                    job = await self._attempt(following.call, following.next_end(), {})
            if following.has_ended(job):
                break
            await asyncio.sleep(pause_s)
        return job
