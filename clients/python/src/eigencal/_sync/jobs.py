"""Calibrating and evaluating: jobs, and what becomes of them."""

import time
from collections.abc import Iterable, Iterator
from typing import Self, Unpack

from pydantic import PrivateAttr

from eigencal._calls import jobs as calls
from eigencal._errors import ConnectionLost, EigencalError
from eigencal._models.jobs import Job
from eigencal._models.requests import CalibrateOptions, Correction, CorrectOptions, EvaluateOptions
from eigencal._progress import Progress, told
from eigencal._sending.following import Following, ended_well, job_of
from eigencal._sending.uploads import Rows
from eigencal._sync.sending import Sender, lines_of

PATIENCE_S = 300.0


class StartedJob(Job):
    """A job that this client started: its state at the time, and ways to go on with it."""

    _client: "Jobs" = PrivateAttr()

    @classmethod
    def _of(cls, job: Job, client: "Jobs") -> Self:
        made = cls.model_validate(job.model_dump())
        made._client = client
        return made

    def wait(
        self, *, progress: Progress = False, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> Job:
        """Wait until it has ended, and return it as it is then. See `Client.wait`."""
        return self._client.wait(self.id, progress=progress, timeout_s=timeout_s, patience_s=patience_s)

    def cancel(self) -> Job:
        """Cancel it and forget its rows. See `Client.cancel`."""
        return self._client.cancel(self.id)


class CalibrationJob(StartedJob):
    """A job that fits a calibration; `wait().calibration_id` names what it made."""


class EvaluationJob(StartedJob):
    """A job that evaluates; `Client.evaluation_report` has what it found."""


class Jobs(Sender):
    """Calls that start jobs and follow them; they need the admin key, if one is set."""

    def calibrate(
        self,
        data: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[CalibrateOptions],
    ) -> CalibrationJob:
        """Upload labelled prompts and start a job that fits a calibration on them.

        The file is streamed, never read whole. The call sets an idempotency key itself, so that repeats after
        a broken connection make one job.

        Args:
            data: A path (JSONL, JSONL.gz or CSV in UTF-8), an open file of such, or rows as mappings.
            idempotency_key: Your own, for repeats beyond this call: the same upload gives the same job.
            timeout_s: Seconds that the upload may take in all; None: those of the client.
            **options: See `CalibrateOptions`.

        Returns:
            The job, queued; `wait` for it.

        Raises:
            InvalidDevData: Rows are bad; `errors` lists line, field and reason. Nothing was stored.
            InvalidSetup: The file cannot be read.
            BodyTooLarge: The file is larger than the service accepts.
            Conflict: The `idempotency_key` was used with other data.
        """
        job = self._send(calls.calibrate(data, dict(options), idempotency_key), timeout_s)
        return CalibrationJob._of(job, self)

    def correct_rows(
        self,
        calibration_id: str,
        rows: Iterable[Correction],
        *,
        timeout_s: float | None = None,
        **options: Unpack[CorrectOptions],
    ) -> CalibrationJob:
        """Start a job that calibrates on the same rows and answers, with corrected verdicts.

        Args:
            calibration_id: Id of the calibration, which stays as it is.
            rows: Which rows, by `line` or `id`, and whether the answer that was judged is `correct`.
            timeout_s: Seconds that the call may take in all; None: those of the client.
            **options: Options of the new calibration; those left out are as they were.

        Returns:
            The job.

        Raises:
            NotFound: There is no such calibration.
            InvalidRequest: A row is not there.
            Conflict: Its rows were deleted, or drawn under other settings.
        """
        job = self._send(calls.correct_rows(calibration_id, rows, dict(options)), timeout_s)
        return CalibrationJob._of(job, self)

    def evaluate(
        self,
        dev: Rows,
        test: Rows,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[EvaluateOptions],
    ) -> EvaluationJob:
        """Upload two sets of labelled prompts and start a job that fits on one and judges on the other.

        Args:
            dev: Rows to fit on, as for `calibrate`.
            test: Rows to test on.
            idempotency_key: As for `calibrate`.
            timeout_s: Seconds that the upload may take in all; None: those of the client.
            **options: See `EvaluateOptions`.

        Returns:
            The job, queued; `wait` for it, then read `evaluation_report`.

        Raises:
            InvalidDevData: Rows are bad; `errors` lists file, line, field and reason. Nothing was stored.
        """
        job = self._send(calls.evaluate(dev, test, dict(options), idempotency_key), timeout_s)
        return EvaluationJob._of(job, self)

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
            progress: True: shown on stderr; or who is told (done, total, stage).
            timeout_s: Seconds to wait at most; None: until it ends. The job goes on in either case.
            patience_s: Seconds that the service may be away in one piece.

        Raises:
            JobFailed: The job failed; `code` and `detail` say why.
            JobCancelled: Somebody cancelled it.
            NotFound: There is no such job.
            TimedOut: `timeout_s` is over.
            NoAnswer: The service was away for longer than `patience_s`.
        """
        tell = told(progress)
        for job in self.events(job_id, timeout_s=timeout_s, patience_s=patience_s):
            tell(job.done, job.total, job.stage or job.state)
        ended_well(job)
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
            NotFound: There is no such job.
            TimedOut: `timeout_s` is over.
        """
        following = Following(job_id, timeout_s, patience_s)
        while True:
            try:
                silence_s = following.silence_s()
                with self._stream(calls.events(job_id), silence_s) as response:
                    for line in lines_of(response, silence_s, following.silence_s):
                        following.heard()
                        if (job := job_of(line)) is not None:
                            yield job
                            # What ends the stream is the job's end; any other end is a broken connection.
                            if job.finished:
                                return
                raise ConnectionLost(f"The events of the job {job_id} ended before it did.")
            except EigencalError as error:
                time.sleep(following.wait_after(error))

    def jobs(self, limit: int = 100, *, timeout_s: float | None = None) -> tuple[Job, ...]:
        """Return the latest jobs, latest first; `limit`: how many at most, 1..1000."""
        return self._send(calls.jobs(limit), timeout_s)

    def job(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Return the state of a job, how far it is, and what came of it. Raises NotFound."""
        return self._send(calls.job(job_id), timeout_s)

    def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Cancel a job, or give up one that has failed, and forget its rows.

        Raises:
            Conflict: The job has succeeded.
            NotFound: There is no such job.
        """
        return self._send(calls.cancel(job_id), timeout_s)

    def retry(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Queue a job that has failed again; it goes on with the answers it has and draws none twice.

        Raises:
            Conflict: It has not failed, or its answers were drawn under other settings.
            NotFound: There is no such job.
        """
        return self._send(calls.retry(job_id), timeout_s)
