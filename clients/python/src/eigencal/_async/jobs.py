"""Calibrating and evaluating: jobs, and what becomes of them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Self, Unpack

from pydantic import PrivateAttr

from eigencal._async.sending import AsyncSender, lines_of
from eigencal._calls import jobs as calls
from eigencal._errors import ConnectionLost, EigencalError
from eigencal._models.jobs import Job
from eigencal._models.requests import CalibrateOptions, Correction, CorrectOptions, EvaluateOptions
from eigencal._progress import Progress, told
from eigencal._sending.following import Following, ended_well, job_of
from eigencal._sending.uploads import Rows

PATIENCE_S = 300.0


class AsyncStartedJob(Job):
    """A job that this client started: its state at the time, and ways to go on with it."""

    _client: "AsyncJobs" = PrivateAttr()

    @classmethod
    def _of(cls, job: Job, client: "AsyncJobs") -> Self:
        made = cls.model_validate(job.model_dump())
        made._client = client
        return made

    async def wait(
        self, *, progress: Progress = False, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> Job:
        """Do as `CalibrationJob.wait` does, awaited."""
        return await self._client.wait(self.id, progress=progress, timeout_s=timeout_s, patience_s=patience_s)

    async def cancel(self) -> Job:
        """Do as `CalibrationJob.cancel` does, awaited."""
        return await self._client.cancel(self.id)


class AsyncCalibrationJob(AsyncStartedJob):
    """A job that fits a calibration; `wait().calibration_id` names what it made."""


class AsyncEvaluationJob(AsyncStartedJob):
    """A job that evaluates; `Client.evaluation_report` has what it found."""


class AsyncJobs(AsyncSender):
    """Calls that start jobs and follow them; they need the admin key, if one is set."""

    async def calibrate(
        self,
        data: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[CalibrateOptions],
    ) -> AsyncCalibrationJob:
        """Do as `Client.calibrate` does, awaited."""
        job = await self._send(calls.calibrate(data, dict(options), idempotency_key), timeout_s)
        return AsyncCalibrationJob._of(job, self)

    async def correct_rows(
        self,
        calibration_id: str,
        rows: Iterable[Correction],
        *,
        timeout_s: float | None = None,
        **options: Unpack[CorrectOptions],
    ) -> AsyncCalibrationJob:
        """Do as `Client.correct_rows` does, awaited."""
        job = await self._send(calls.correct_rows(calibration_id, rows, dict(options)), timeout_s)
        return AsyncCalibrationJob._of(job, self)

    async def evaluate(
        self,
        dev: Rows,
        test: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[EvaluateOptions],
    ) -> AsyncEvaluationJob:
        """Do as `Client.evaluate` does, awaited."""
        job = await self._send(calls.evaluate(dev, test, dict(options), idempotency_key), timeout_s)
        return AsyncEvaluationJob._of(job, self)

    async def wait(
        self,
        job_id: str,
        *,
        progress: Progress = False,
        timeout_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Job:
        """Do as `Client.wait` does, awaited."""
        tell = told(progress)
        async for job in self.events(job_id, timeout_s=timeout_s, patience_s=patience_s):
            tell(job.done, job.total, job.stage or job.state)
        ended_well(job)
        return job

    async def events(
        self, job_id: str, *, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> AsyncIterator[Job]:
        """Do as `Client.events` does, awaited."""
        following = Following(job_id, timeout_s, patience_s)
        while True:
            try:
                silence_s = following.silence_s()
                async with self._stream(calls.events(job_id), silence_s) as response:
                    async for line in lines_of(response, silence_s, following.silence_s):
                        following.heard()
                        if (job := job_of(line)) is not None:
                            yield job
                            # What ends the stream is the job's end; any other end is a broken connection.
                            if job.finished:
                                return
                raise ConnectionLost(f"The events of the job {job_id} ended before it did.")
            except EigencalError as error:
                await asyncio.sleep(following.wait_after(error))

    async def jobs(self, limit: int = 100, *, timeout_s: float | None = None) -> tuple[Job, ...]:
        """Do as `Client.jobs` does, awaited."""
        return await self._send(calls.jobs(limit), timeout_s)

    async def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.job` does, awaited."""
        return await self._send(calls.job(job_id), timeout_s)

    async def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.cancel` does, awaited."""
        return await self._send(calls.cancel(job_id), timeout_s)

    async def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Do as `Client.retry` does, awaited."""
        return await self._send(calls.retry(job_id), timeout_s)
