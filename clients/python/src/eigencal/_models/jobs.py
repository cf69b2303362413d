"""Jobs of the service."""

from datetime import datetime
from typing import Literal

from eigencal._models.result import Result


class JobError(Result):
    """Why a job failed."""

    code: str
    """A code of the error table."""
    detail: str
    """The same for a person."""


class Job(Result):
    """A job."""

    activated: bool | None
    """Whether that one became the active one of its set-up; null before, and of an evaluation."""
    calibration_id: str | None
    """The calibration that it made."""
    created_at: datetime
    """When it was posted."""
    decision: str | None
    """The same as a sentence that says why."""
    done: int
    """Units of the stage that are done."""
    error: JobError | None
    """Why it failed."""
    eta_s: float | None
    """Seconds that the stage will still take; null: not known."""
    finished_at: datetime | None
    """When it ended."""
    id: str
    """Id of the job."""
    kind: Literal["calibrate", "evaluate"] | str
    """What it does."""
    links: dict[str, str]
    """Paths: `self`, `events`; once it has succeeded `report` and, if any, `calibration`."""
    name: str
    """The name given to it."""
    note: str
    """What an open job waits for, if it does."""
    refused_rows: int
    """Rows that the LLM server refused while it answered others, once the job has ended; retry it to ask for
    them again."""
    stage: Literal["sampling", "embedding", "fitting", "reporting"] | str | None
    """What a running job is at."""
    started_at: datetime | None
    """When it first ran."""
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] | str
    """Where it stands; the last three are final, but that a failed job can be retried."""
    total: int
    """Units of the stage in all."""

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.state == "succeeded"
