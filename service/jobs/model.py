"""Jobs and the calibrations they make: what is stored, and the ports through which the API sees them."""

import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from service.calibration.calibration import Calibration, CalibrationSource
from service.errors import Conflict
from service.llm.port import Fingerprint, Message, question_text, shape_hash

MIN_USABLE_ROWS = 30
FEW_ROWS = 100  # below this the report warns

JobKind = Literal["calibrate", "evaluate"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobStage = Literal["sampling", "embedding", "fitting", "reporting"]
FINISHED: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a calibration made of a row: the answer that it judged, whether that is right, and why.

    `why`: "given" (by the data), "reference_contained" (a reference stands in the answer, word for word),
    "rouge_l" (its F is above 0.3), or "none" (none of these: wrong). `rouge_l`: the best F, in [0, 1].
    """

    answer: str
    correct: bool
    why: Literal["given", "reference_contained", "rouge_l", "none"]
    rouge_l: float


@dataclass(frozen=True, slots=True)
class DevRow:
    """One labelled row. Exactly one of `prompt` and `messages` is set, unless `samples` came without either.

    `samples`: the answers already drawn, in order, empty ones included; None: the service draws them.
    `logprobs`: of each whole sample, in nats; None: not known.
    `answer`: the one answer that `correct` (right or wrong, as the data says) is about.
    `verdict`: of a calibration on it; None before, and for a row with fewer answers than the calibration.
    """

    line: int
    id: str | None
    references: tuple[str, ...]
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    answer: str | None = None
    correct: bool | None = None
    verdict: Verdict | None = None

    def usable(self) -> bool:
        """Tell whether the row can take part in a fit: a reference, and two answers drawn or to be drawn."""
        return bool(self.references) and (self.samples is None or len(self.samples) >= 2)

    @property
    def question(self) -> str | None:
        """Return the text of what is asked, as `question_text` has it."""
        return question_text(self.prompt, self.messages)

    @property
    def wording(self) -> Hashable:
        """Return what rows that ask the same share: the prompt, or every turn.

        White space, case and the encoding of accents make no other.

        Of a row without either, its line: it is no copy of any other.
        """
        if self.prompt is not None:
            return _plain(self.prompt)
        if self.messages is not None:
            return tuple((turn.role, _plain(turn.content)) for turn in self.messages)
        return self.line


def _plain(text: str) -> str:
    # Not NFKC, which takes x² for x2. Again after folding, which may undo the normal form.
    folded = unicodedata.normalize("NFC", " ".join(text.split())).casefold()
    return unicodedata.normalize("NFC", folded)


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """What the caller of a calibration may choose. `num_samples` None: the serving number.

    `method`: a map; "both": the better of the two that need no log-probabilities; "auto": the best of all.
    `drawn_by`: who drew the `samples` of rows that carry them; `source_label` names a caller's own set-up.
    `dev_rows`: set for an evaluation; so many of the rows are fitted on, the rest are tested on.
    """

    method: Literal["depolarized", "temperature", "evidence", "both", "auto"] = "auto"
    num_samples: int | None = None
    activate: Literal["if_better", "always", "never"] = "if_better"
    name: str = ""
    seed: int = 0
    drawn_by: Literal["caller", "service"] = "caller"
    source_label: str = ""
    dev_rows: int | None = None

    @property
    def kind(self) -> JobKind:
        """Return what the job does."""
        return "calibrate" if self.dev_rows is None else "evaluate"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: a code of the error table and a sentence for the caller."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its owner sees it. `done` of `total` units of the stage; `eta_s` None while unknown.

    `note` says in words what a running job waits for, such as an LLM server that is down; else empty.
    `activated`: whether the calibration made became the active one, and `decision`, a sentence that says so,
    and why; None before, and of other jobs.
    `refused_rows`: that the LLM server refused for good, while it answered others.
    """

    id: str
    kind: JobKind
    state: JobState
    created_at: datetime
    name: str = ""
    stage: JobStage | None = None
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    note: str = ""
    error: JobError | None = None
    calibration_id: str | None = None
    activated: bool | None = None
    decision: str | None = None
    refused_rows: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def finished(self) -> bool:
        """Tell whether the state is final."""
        return self.state in FINISHED


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A stored calibration and what changes around it: whether it is active, whether its data are kept.

    `projection_ece`: of its map on held-out rows, as its report has it.
    """

    calibration: Calibration
    active: bool
    activated_at: datetime | None
    job_id: str | None
    num_rows: int
    data_kept: bool
    projection_ece: float | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """That a calibration came into force, for requests of its fingerprint.

    `by`: the job's id, "settings key", "key_…" and its name, or "no key" where none was needed. `replaced`:
    the calibration that was in force until then. `by` and `reason` are empty for those of before 0.3.0.
    """

    calibration_id: str
    activated_at: datetime
    by: str
    reason: str
    replaced: str | None
    fingerprint_key: str


@dataclass(frozen=True, slots=True)
class Correction:
    """A row of a calibration, by its line or its id, and what is right of the answer that was judged."""

    correct: bool
    line: int | None = None
    id: str | None = None


class JobQueue(Protocol):
    """Durable jobs. Every method raises StoreUnavailable when the store cannot be reached."""

    async def submit(
        self,
        rows: AsyncIterable[DevRow] | Iterable[DevRow],
        options: CalibrateOptions,
        *,
        idempotency_key: str | None = None,
    ) -> tuple[Job, bool]:
        """Store the rows and a job for them in one transaction, start it; return it and whether it is new.

        Whatever `rows` raises while being read leaves nothing stored. The transaction is open meanwhile, so
        rows must come from a local source (a spooled file), not from a slow sender. The content is hashed on
        the way: the same key with the same rows and options returns the job there is.
        Raises Conflict (same key, other content), InvalidDevData (too few usable rows, a mixture of rows
        with and without samples that were not all drawn by the service, or rows that would be drawn in more
        than one way).
        """

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""

    async def latest(self, *, limit: int = 100) -> list[Job]:
        """Return the latest jobs, latest first."""

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job, forget its rows and return it; None if there is none such.

        A job that has failed can be given up like this, too. Raises Conflict when it has succeeded;
        cancelling twice is no error.
        """

    async def retry(self, job_id: str) -> Job | None:
        """Have a job go on with the answers it has, and return it; None if there is none such.

        One that failed goes on itself; of one that succeeded, but had rows refused, a new job asks for what
        is missing. One for which nothing was drawn yet is bound to the present settings. Raises Conflict when
        nothing is missing, when its rows were not kept, or when answers were drawn under other settings.
        """

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> Job | None:
        """Start a job on the rows of one that succeeded, answers and all, with corrected verdicts.

        `options`: those of `CalibrateOptions` that are to differ. Nothing is drawn. None if there is no such
        job. Raises InvalidRequest for a row that it does not have, Conflict as `retry` does.
        """

    def events(self, job_id: str) -> AsyncIterator[Job]:
        """Yield the job now and whenever it has changed, ending with its final state; nothing if unknown."""

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results (`service.report.model.Results`) of an evaluation that succeeded."""


class CalibrationStore(CalibrationSource, Protocol):
    """Stored calibrations. Async methods raise StoreUnavailable when the store cannot be reached."""

    async def list_all(self) -> list[CalibrationRecord]:
        """Return all calibrations, latest first."""

    async def record(self, calibration_id: str) -> CalibrationRecord | None:
        """Return a calibration with what is known around it."""

    async def list_active(self) -> list[CalibrationRecord]:
        """Return one calibration per fingerprint, the service's own set-up first, then latest activated."""

    async def activate(self, calibration_id: str, *, by: str = "") -> CalibrationRecord | None:
        """Make this the active calibration of its fingerprint, at once on this replica; None if unknown.

        `by`: who asked for it, as `Activation` tells.
        """

    def num_activations(self) -> int:
        """Return how many activations there ever were, as far as is known here; from memory."""

    async def history(self) -> list[Activation]:
        """Return every activation, newest first."""

    async def report(self, calibration_id: str) -> dict[str, Any] | None:
        """Return the report (`service.report.model.Report`) made when it was fitted."""

    def rows(self, calibration_id: str) -> AsyncIterator[DevRow]:
        """Yield the rows it was fitted on, `samples` and `verdict` filled; none once forgotten."""

    async def forget_data(self, calibration_id: str) -> bool:
        """Delete its rows (prompts, references, answers) for good; False if there is no such calibration."""


# What a job is bound to: the settings that it was posted under, and what its answers are drawn with.


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a service that decide what comes of a job, as JSON values by name.

    `embedding`: those that matter to every job. `drawing`: those that matter besides to a job whose answers
    the service draws, or vouches to have drawn. Services with equal set-ups may run each other's jobs.
    """

    embedding: Mapping[str, Any] = field(default_factory=dict)
    drawing: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, *, draws: bool) -> dict[str, Any]:
        """Return the settings that a job of this kind is bound to."""
        return {**self.embedding, **(self.drawing if draws else {}), "draws": draws}

    def keys(self) -> tuple[str, str]:
        """Return the keys of the jobs that this service runs: those that draw, then those that do not."""
        return setup_key(self.parts(draws=True)), setup_key(self.parts(draws=False))


def setup_key(parts: Mapping[str, Any]) -> str:
    """Return a stable hash (16 hex digits) of what `Setup.parts` returned."""
    return shape_hash(**parts)


def needs_llm(options: CalibrateOptions, *, missing: int) -> bool:
    """Tell whether a job asks the LLM: for `missing` rows without answers, or who it was that drew them."""
    return missing > 0 or options.drawn_by == "service"


def differing(posted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of the settings in which the two differ."""
    return sorted(k for k in posted.keys() | present.keys() if posted.get(k) != present.get(k))


def check_same(bound: Fingerprint, now: Fingerprint) -> None:
    """Raise Conflict when answers would come from another set-up than those already drawn."""
    differs = bound.differs(now)
    if "model" in differs:
        raise Conflict(
            "Answers of one calibration must all come from one model, but these come from two: first "
            f"{bound.model!r} answered, then {now.model!r}."
        )
    if differs:
        raise Conflict(
            "Answers of one calibration must all be drawn alike, but these parts differ between its rows, or "
            f"have changed since it began: {', '.join(differs)}."
        )
