"""Calibrating and evaluating: jobs, and what becomes of them."""

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
from eigencal._requests import CalibrateOptions, Correction, CorrectOptions, EvaluateOptions
from eigencal._results import Job

PATIENCE_S = 300.0
SILENCE_S = 30.0  # a service that has not answered by then is away
LONGEST_WAIT_S = 20.0


def _upload_call(
    path: str, files: Mapping[str, Rows], options: Mapping[str, Any], key: str | None
) -> Call[Job]:
    # One key for all attempts of this call: whatever breaks off, there is one job.
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    fields = {name: str(value) for name, value in without_none(options).items()}
    return Call("POST", path, Job, fields, files=files, headers=headers)


def _job_call(method: str, job_id: str) -> Call[Job]:
    return Call(method, format_path("/jobs/{}", job_id), Job)


def _is_passing(error: EigencalError) -> bool:
    """Tell whether the service may be there again soon: silence counts, too, behind a proxy."""
    return isinstance(error, APIConnectionError | RateLimitError) or error.status in (502, 503, 504)


class _Following:
    """A job that is waited for: when it is looked at, and how long the service may be away meanwhile."""

    def __init__(self, job_id: str, timeout_s: float | None, progress: Progress) -> None:
        self.call = _job_call("GET", job_id)
        self._ends_at = math.inf if timeout_s is None else time.monotonic() + seconds(timeout_s)
        self._report = as_callback(progress)
        self._reported: tuple[int, int, str] | None = None

    def pauses(self) -> Iterator[float]:
        """Yield the seconds between two looks: 0.1 at first, then up to 2. Raises APITimeoutError."""
        pause_s = 0.1
        while (left_s := self._ends_at - time.monotonic()) > 0:
            yield min(pause_s, left_s)
            pause_s = min(1.3 * pause_s, 2.0)
        raise APITimeoutError("The job has not ended in the time given; it goes on.")

    def retry_policy(self) -> dict[str, Any]:
        """Return when a service that is away is asked again, from now on."""
        last_start = min(time.monotonic() + PATIENCE_S, self._ends_at)
        return retry_policy(_is_passing, last_start, attempts=None, longest_wait_s=LONGEST_WAIT_S)

    def next_end(self) -> float:
        """Return when the next answer is late."""
        return min(time.monotonic() + SILENCE_S, self._ends_at)

    def has_ended(self, job: Job) -> bool:
        """Tell whether the job has, and report its progress. Raises JobEndedError where it has no result."""
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
    """Calls that start jobs and follow them; they need the admin key, if one is set."""

    def calibrate(
        self,
        data: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[CalibrateOptions],
    ) -> Job:
        """Upload labelled prompts and start a job that fits a calibration on them.

        The data are copied to a temporary file first, and never held in memory.

        Args:
            data: A path (JSONL, JSONL.gz or CSV in UTF-8), an open file of such, or rows as mappings.
            idempotency_key: Your own, for repeats beyond this call: the same upload gives the same job.
            timeout_s: Seconds that the upload may take in all; None: those of the client.
            **options: See `CalibrateOptions`.

        Returns:
            The job, queued; `wait` for it. Its `calibration_id` then names what it made.

        Raises:
            UnprocessableEntityError: Rows are bad (code `invalid_dev_data`): `errors` lists line, field and
                reason. Nothing was stored.
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
            calibration_id: Id of the calibration, which stays as it is.
            rows: Which rows, by `line` or `id`, and whether the answer that was judged is `correct`.
            timeout_s: See `Client`.
            **options: Options of the new calibration; those left out are as they were.

        Raises:
            UnprocessableEntityError: A row is not there.
            ConflictError: Its rows were deleted, or drawn under other settings.
        """
        path = format_path("/calibrations/{}/rows", calibration_id)
        body = {"rows": list(rows), **without_none(options)}
        return self._send(Call("PATCH", path, Job, body, is_idempotent=False), timeout_s)  # each makes a job

    def evaluate(
        self,
        dev: Rows,
        test: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[EvaluateOptions],
    ) -> Job:
        """Upload two sets of labelled prompts and start a job that fits on one and judges on the other.

        All else is as for `calibrate`; the `report` of the job has the figures.
        """
        call = _upload_call("/evaluate", {"dev": dev, "test": test}, options, idempotency_key)
        return self._send(call, timeout_s)

    def wait(self, job_id: str, *, progress: Progress = False, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended well, and return it as it is then.

        A restart of the service in between does no harm: the job goes on, and so does the waiting.

        Args:
            job_id: Id of the job.
            progress: True: shown on stderr; or a callback (done, total, stage).
            timeout_s: Seconds to wait at most; None: until it ends. The job goes on in either case.

        Raises:
            JobEndedError: The job failed or was cancelled; `code` and `detail` say why.
            APITimeoutError: `timeout_s` is over.
            APIConnectionError: The service was away for five minutes.
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
        """Return the latest jobs, latest first; `limit`: how many at most, 1..1000."""
        return self._send(Call("GET", f"/jobs?limit={limit}", tuple[Job, ...]), timeout_s)

    def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Return the state of a job, how far it is, and what came of it. Raises NotFoundError."""
        return self._send(_job_call("GET", job_id), timeout_s)

    def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Cancel a job, or give up one that has failed, and forget its rows. Raises ConflictError."""
        return self._send(_job_call("DELETE", job_id), timeout_s)

    def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Queue a job that has failed again; it goes on with the answers it has. Raises ConflictError."""
        call = Call("POST", format_path("/jobs/{}/retry", job_id), Job, is_idempotent=False)
        return self._send(call, timeout_s)  # a second one is a conflict


class AsyncJobs(AsyncAPIClient):
    """The same, awaited."""

    calibrate = awaited(Jobs.calibrate)
    correct_rows = awaited(Jobs.correct_rows)
    evaluate = awaited(Jobs.evaluate)
    jobs = awaited(Jobs.jobs)
    job = awaited(Jobs.job)
    cancel = awaited(Jobs.cancel)
    retry = awaited(Jobs.retry)

    async def wait(self, job_id: str, *, progress: Progress = False, timeout_s: float | None = None) -> Job:
        """Do as `Client.wait` does."""
        following = _Following(job_id, timeout_s, progress)
        for pause_s in following.pauses():
            async for attempt in stamina.retry_context(**following.retry_policy()):
                with attempt:
                    job = await self._attempt(following.call, following.next_end(), {})
            if following.has_ended(job):
                break
            await asyncio.sleep(pause_s)
        return job
