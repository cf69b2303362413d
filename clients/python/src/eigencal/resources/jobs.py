"""Calibrating and evaluating: jobs, and what becomes of them."""

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Unpack

import stamina

from eigencal._base_client import (
    AsyncAPIClient,
    Call,
    SyncAPIClient,
    TimeLimit,
    format_path,
    header,
    json_parser,
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
from eigencal._uploads import Rows, Upload

PATIENCE_S = 300.0
SILENCE_S = 30.0  # a service that has not answered by then is away
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 5.0

_parse_job = json_parser(Job)
_parse_jobs = json_parser(tuple[Job, ...])


def _upload_call(
    path: str, files: Mapping[str, Rows], options: Mapping[str, Any], key: str | None
) -> Call[Job]:
    # One key for all attempts of this call: whatever breaks off, there is one job.
    headers = header("Idempotency-Key", key or uuid.uuid4().hex)
    fields = {name: str(value) for name, value in without_none(options).items()}
    return Call("POST", path, _parse_job, headers=headers, upload=Upload(files, fields))


def _correct_call(calibration_id: str, rows: Iterable[Correction], options: CorrectOptions) -> Call[Job]:
    path = format_path("/calibrations/{id}/rows", id=calibration_id)
    body = {"rows": list(rows), **without_none(options)}
    return Call("PATCH", path, _parse_job, body, is_idempotent=False)  # each makes a job


def _jobs_call(limit: int) -> Call[tuple[Job, ...]]:
    return Call("GET", "/jobs", _parse_jobs, query={"limit": str(limit)})


def _job_call(method: str, job_id: str) -> Call[Job]:
    return Call(method, format_path("/jobs/{id}", id=job_id), _parse_job)


def _retry_call(job_id: str) -> Call[Job]:
    # A second one is a conflict.
    return Call("POST", format_path("/jobs/{id}/retry", id=job_id), _parse_job, is_idempotent=False)


class _Following:
    """How long a job is followed, and how long the service may be away meanwhile."""

    def __init__(self, job_id: str, timeout_s: float | None, patience_s: float) -> None:
        self.job_id, self.patience_s = job_id, patience_s
        self.ends_at = math.inf if timeout_s is None else time.monotonic() + seconds(timeout_s)

    def limit(self) -> TimeLimit:
        """Return how long the next answer may take. Raises APITimeoutError where no time is left."""
        left_s = self.ends_at - time.monotonic()
        if left_s <= 0:
            raise APITimeoutError(f"The job {self.job_id} has not ended in the time given; it goes on.")
        return TimeLimit.of(min(left_s, SILENCE_S))

    def policy(self) -> dict[str, Any]:
        """Return when a service that is away is asked again, from now on."""
        return retry_policy(
            self.is_passing,
            min(time.monotonic() + self.patience_s, self.ends_at),
            attempts=None,
            first_wait_s=FIRST_WAIT_S,
            longest_wait_s=LONGEST_WAIT_S,
            longest_retry_after_s=self.patience_s,
        )

    def pauses(self) -> Iterator[float]:
        """Yield the seconds between two looks at the job: 0.1 at first, then up to 2."""
        pause_s = 0.1
        while True:
            yield max(0.0, min(pause_s, self.ends_at - time.monotonic()))
            pause_s = min(1.3 * pause_s, 2.0)

    def is_passing(self, error: EigencalError) -> bool:
        """Tell whether the service may be there again soon."""
        # Silence counts, too: a service that hangs may have been restarted behind its proxy.
        return isinstance(error, APIConnectionError | RateLimitError) or error.status in (502, 503, 504)


def check_succeeded(job: Job) -> None:
    """Raise JobEndedError where a job that has ended has no result."""
    if job.state == "cancelled":
        raise JobEndedError(f"The job {job.id} was cancelled.", job_id=job.id, code="job_cancelled")
    if not job.succeeded:
        code, detail = (job.error.code, job.error.detail) if job.error else (None, "it does not say why")
        raise JobEndedError(f"The job {job.id} failed: {detail}", job_id=job.id, code=code)


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

        The data are copied to a temporary file first, and never held in memory. The call sets an idempotency
        key itself, so that repeats after a broken connection make one job.

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
            APIStatusError: With code `body_too_large`: the file is larger than the service accepts.
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

        Returns:
            The job.

        Raises:
            NotFoundError: There is no such calibration.
            UnprocessableEntityError: A row is not there.
            ConflictError: Its rows were deleted, or drawn under other settings.
        """
        return self._send(_correct_call(calibration_id, rows, options), timeout_s)

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

        Args:
            dev: Rows to fit on, as for `calibrate`.
            test: Rows to test on.
            idempotency_key: As for `calibrate`.
            timeout_s: Seconds that the upload may take in all; None: those of the client.
            **options: See `EvaluateOptions`.

        Returns:
            The job, queued; `wait` for it, then read its `report`.

        Raises:
            UnprocessableEntityError: Rows are bad (code `invalid_dev_data`): `errors` lists file, line, field
                and reason. Nothing was stored.
        """
        call = _upload_call("/evaluate", {"dev": dev, "test": test}, options, idempotency_key)
        return self._send(call, timeout_s)

    def wait(
        self,
        job_id: str,
        *,
        progress: Progress = False,
        timeout_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Job:
        """Wait until a job has ended well, and return it as it is then.

        A restart of the service in between does no harm: the job goes on, and so does the waiting.

        Args:
            job_id: Id of the job.
            progress: True: shown on stderr; or a callback (done, total, stage).
            timeout_s: Seconds to wait at most; None: until it ends. The job goes on in either case.
            patience_s: Seconds that the service may be away in one piece.

        Raises:
            JobEndedError: The job failed or was cancelled; `code` and `detail` say why.
            NotFoundError: There is no such job.
            APITimeoutError: `timeout_s` is over.
            APIConnectionError: The service was away for longer than `patience_s`.
        """
        report = as_callback(progress)
        for job in self.events(job_id, timeout_s=timeout_s, patience_s=patience_s):
            report(job.done, job.total, job.stage or job.state)
        check_succeeded(job)
        return job

    def events(
        self, job_id: str, *, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> Iterator[Job]:
        """Yield a job now and whenever it changes, until it has ended; over restarts of the service.

        Args:
            job_id: Id of the job.
            timeout_s: Seconds to follow it at most; None: until it ends.
            patience_s: Seconds that the service may be away in one piece.

        Raises:
            NotFoundError: There is no such job.
            APITimeoutError: `timeout_s` is over.
        """
        following, call, last = _Following(job_id, timeout_s, patience_s), _job_call("GET", job_id), None
        for pause_s in following.pauses():
            for attempt in stamina.retry_context(**following.policy()):
                with attempt:
                    job = self._attempt(call, following.limit())
            if job != last:
                yield job
            if job.finished:
                return
            last = job
            time.sleep(pause_s)

    def jobs(self, limit: int = 100, *, timeout_s: float | None = None) -> tuple[Job, ...]:
        """Return the latest jobs, latest first; `limit`: how many at most, 1..1000."""
        return self._send(_jobs_call(limit), timeout_s)

    def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Return the state of a job, how far it is, and what came of it. Raises NotFoundError."""
        return self._send(_job_call("GET", job_id), timeout_s)

    def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Cancel a job, or give up one that has failed, and forget its rows.

        Raises:
            ConflictError: The job has succeeded.
            NotFoundError: There is no such job.
        """
        return self._send(_job_call("DELETE", job_id), timeout_s)

    def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Queue a job that has failed again; it goes on with the answers it has and draws none twice.

        Raises:
            ConflictError: It has not failed, or its answers were drawn under other settings.
            NotFoundError: There is no such job.
        """
        return self._send(_retry_call(job_id), timeout_s)


class AsyncJobs(AsyncAPIClient):
    """Calls that start jobs and follow them; they need the admin key, if one is set."""

    async def calibrate(
        self,
        data: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[CalibrateOptions],
    ) -> Job:
        """Do as `Client.calibrate` does, awaited."""
        call = _upload_call("/calibrate", {"file": data}, options, idempotency_key)
        return await self._send(call, timeout_s)

    async def correct_rows(
        self,
        calibration_id: str,
        rows: Iterable[Correction],
        *,
        timeout_s: float | None = None,
        **options: Unpack[CorrectOptions],
    ) -> Job:
        """Do as `Client.correct_rows` does, awaited."""
        return await self._send(_correct_call(calibration_id, rows, options), timeout_s)

    async def evaluate(
        self,
        dev: Rows,
        test: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[EvaluateOptions],
    ) -> Job:
        """Do as `Client.evaluate` does, awaited."""
        call = _upload_call("/evaluate", {"dev": dev, "test": test}, options, idempotency_key)
        return await self._send(call, timeout_s)

    async def wait(
        self,
        job_id: str,
        *,
        progress: Progress = False,
        timeout_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Job:
        """Do as `Client.wait` does, awaited."""
        report = as_callback(progress)
        async for job in self.events(job_id, timeout_s=timeout_s, patience_s=patience_s):
            report(job.done, job.total, job.stage or job.state)
        check_succeeded(job)
        return job

    async def events(
        self, job_id: str, *, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> AsyncIterator[Job]:
        """Do as `Client.events` does, awaited."""
        following, call, last = _Following(job_id, timeout_s, patience_s), _job_call("GET", job_id), None
        for pause_s in following.pauses():
            async for attempt in stamina.retry_context(**following.policy()):
                with attempt:
                    job = await self._attempt(call, following.limit())
            if job != last:
                yield job
            if job.finished:
                return
            last = job
            await asyncio.sleep(pause_s)

    async def jobs(self, limit: int = 100, *, timeout_s: float | None = None) -> tuple[Job, ...]:
        """Do as `Client.jobs` does, awaited."""
        return await self._send(_jobs_call(limit), timeout_s)

    async def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.job` does, awaited."""
        return await self._send(_job_call("GET", job_id), timeout_s)

    async def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.cancel` does, awaited."""
        return await self._send(_job_call("DELETE", job_id), timeout_s)

    async def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.retry` does, awaited."""
        return await self._send(_retry_call(job_id), timeout_s)
