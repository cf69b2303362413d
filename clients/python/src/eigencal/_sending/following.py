"""Following a job by its events, over restarts of the service."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import ValidationError

from eigencal import _errors as errors
from eigencal._models.jobs import Job
from eigencal._sending.setup import seconds

SILENCE_S = 45.0  # the service sends a sign of life every 15 s
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 5.0
_PASSING = (502, 503, 504)


@dataclass(slots=True)
class Following:
    """How long a job is waited for, and how long the service may be away meanwhile; in seconds of `clock`."""

    job_id: str
    timeout_s: float | None
    patience_s: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    away_since: float | None = field(default=None, init=False)
    wait_s: float = field(default=FIRST_WAIT_S, init=False)

    def __post_init__(self) -> None:
        if self.timeout_s is not None:
            self.timeout_s = seconds(self.timeout_s)
        self.began = self.clock()

    def silence_s(self) -> float:
        """Return how long the next sign of life may take. Raises TimedOut where no time is left."""
        if self.timeout_s is None:
            return SILENCE_S
        left = self.began + self.timeout_s - self.clock()
        if left <= 0:
            raise errors.TimedOut(
                f"The job {self.job_id} has not ended after {self.timeout_s:g} s; it goes on."
            )
        return min(left, SILENCE_S)

    def heard(self) -> None:
        """Take note of a sign of life. Raises TimedOut where no time is left."""
        self.away_since, self.wait_s = None, FIRST_WAIT_S
        self.silence_s()

    def wait_after(self, error: errors.EigencalError) -> float:
        """Return the seconds until the next attempt. Raises `error` where it is none that passes."""
        self.silence_s()
        now = self.clock()
        self.away_since = now if self.away_since is None else self.away_since
        # Silence counts, too: a service that hangs may have been restarted behind its proxy.
        passing = isinstance(error, errors.NoAnswer | errors.RateLimited) or error.status in _PASSING
        if not passing or now - self.away_since >= self.patience_s:
            raise error
        wait_s, self.wait_s = self.wait_s, min(2 * self.wait_s, LONGEST_WAIT_S)
        return min(wait_s, self.silence_s())


def job_of(line: bytes) -> Job | None:
    """Return the job that a line of the stream of events tells; None for every other line."""
    if not line.startswith(b"data:"):
        return None
    try:
        return Job.model_validate_json(line.removeprefix(b"data:"))
    except ValidationError:
        raise errors.UnexpectedAnswer("An event of a job is not as the contract has it.") from None


def ended_well(job: Job) -> None:
    """Raise JobFailed or JobCancelled where a job that has ended has no result."""
    if job.state == "cancelled":
        raise errors.JobCancelled(f"The job {job.id} was cancelled.", job.id)
    if not job.succeeded:
        code, detail = (job.error.code, job.error.detail) if job.error else (None, "it does not say why")
        raise errors.JobFailed(f"The job {job.id} failed: {detail}", job.id, code)
