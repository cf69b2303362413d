"""The work of a calibration job: draw missing answers, embed them, fit, report, store.

A job waits for servers that are down, and lets live scores go first.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import (
    CALLER,
    ActivateOption,
    Calibration,
    Fingerprint,
    Unit,
    caller_fingerprint,
    service_fingerprint,
    with_embedder,
)
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import WHOLE, Fitted, OnDone, Stream, curvatures, fit_all, rng
from service.calibration.labels import LabelledRows
from service.calibration.material import (
    FULL_SHARE,
    DevSet,
    Sentences,
    all_texts,
    answered,
    assemble,
    check_made_by,
    claim_material,
    claim_texts,
    conformal_reference,
    sentences_of,
    texts_of,
    usable_rows,
    without_near_copies,
)
from service.calibration.promotion import Promotion, promote
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, Comparer, compared_by
from service.embedding.port import Embedder, EmbedderIdentity, Kernel
from service.errors import (
    Conflict,
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    InvalidDevData,
    LLMError,
    LLMUnavailable,
    Overloaded,
    StoreUnavailable,
)
from service.ids import new_id
from service.jobs.model import JobStage
from service.jobs.store import RunningJob, SqlJobs, once_stored
from service.llm.ask import NO_REPLY, Asker, checked_by, is_correct
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Priority
from service.llm.samples import Generation, distinct, usable
from service.report.report import make_report
from service.scoring.score import Serving
from service.scoring.scorer import LiveLoad
from service.spectral.resampling import DEFAULT, Resamples

T = TypeVar("T")
Notify = Callable[[str], Awaitable[None]]
logger = logging.getLogger(__name__)
EVERY_S = 0.5  # between two writes of the progress of a stage
MAX_TEXTS = 250_000  # of the claims of a job, as of uploads
MAX_CLAIMS_BYTES = 1 << 30
REFERENCES_COMPARED = 3  # of a row, by the LLM
MOST_REFUSED = 10  # rows, all of those begun, after which nothing is compared or checked
MAX_CHECK_S = 60.0  # for the self-checks of a row
LEFT_OUT = 1 - FULL_SHARE  # of the rows: without more self-checks they are not used
EMBEDDED_AT_ONCE = 16  # texts; live scores are embedded in between
DRAWN_AGAIN = 2  # at most this multiple of the answers asked for is drawn if some have no text
POLL_S = 0.02
MAX_PAUSE_S = 3.0
REFUSALS = frozenset({400, 413, 422})  # HTTP statuses for the refusal of a single request
_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded, DeadlineExceeded, LLMError)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries with waits that double from `first_wait_s` to `max_wait_s`.

    `give_up_s`: time of transient failures in a row after which to give up. A server that answers with 500,
    with an invalid reply or too late is treated like a server that is down: it may be starting, or the answer
    may be from its proxy.
    """

    first_wait_s: float = 0.5
    max_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]], notify: Notify) -> T:
        """Return the result of `attempt`, retried after transient failures.

        `notify` gets the reason for each wait. Raises the last error if it is not transient, or after
        `give_up_s`.
        """
        began, wait = time.monotonic(), self.first_wait_s
        while True:
            try:
                return await attempt()
            except _PASSING as error:
                status = error.extra.get("llm_status")
                failed = error.retryable or (isinstance(status, int) and status >= 500)
                if not failed or time.monotonic() - began > self.give_up_s:
                    raise
                reason: EigencalError = error
            await notify(f"Waiting to try again: {reason.full_detail}")
            await asyncio.sleep(max(wait, min(reason.retry_after_s or 0.0, self.max_wait_s)))
            wait = min(2 * wait, self.max_wait_s)


async def embedder_identity(
    embedder: Embedder, patience: RetryPolicy, notify: Notify, *, ask_anew: bool = False
) -> EmbedderIdentity:
    """Return the identity of the embedder, waiting for it if necessary.

    ask_anew: ask the embedder again even if its identity is known, since it may have changed.
    """

    async def ask() -> EmbedderIdentity:
        with contextlib.suppress(EmbedderUnavailable):
            if not ask_anew:
                return embedder.identity
        await embedder.check()
        return embedder.identity

    return await patience.keep_trying(ask, notify)


class LivePriority:
    """Turns for work that has lower priority than live scores.

    Without live scores under way, every turn begins at once. With live scores, one turn runs at a time. It
    begins when no live score is under way, or after a pause as long as the previous turn, at most
    `MAX_PAUSE_S`: a calibration is slowed down but makes progress under any load. `live` counts the live
    scores under way.
    """

    def __init__(self, live: LiveLoad | None = None) -> None:
        self._live = live or LiveLoad()
        self._next = 0.0  # earliest start of a turn during live work
        self._one = asyncio.Lock()

    async def turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the work, done in its turn."""
        if not self._live.under_way:
            return await work()
        async with self._one:
            while self._live.under_way and time.monotonic() < self._next:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(POLL_S)
            if self._live.under_way:
                began = time.monotonic()
                try:
                    return await work()
                finally:
                    now = time.monotonic()
                    self._next = now + min(now - began, MAX_PAUSE_S)
        return await work()  # no live score is left: all waiting turns begin at once


def row_request(serving: Serving, row: DevRow, num_samples: int) -> GenerationRequest:
    """Return the request for answers to a row, with lower priority than live scores."""
    prompt = (row.prompt or "") if row.messages is None else None
    return serving.request(
        prompt=prompt, messages=row.messages, num_samples=num_samples, priority=Priority.JOB
    )


def check_same(bound: Fingerprint, now: Fingerprint) -> None:
    """Raise Conflict if new answers have another set-up than the answers already drawn."""
    differs = bound.differs(now)
    if "model" in differs:
        raise Conflict(
            "Answers of one calibration must all come from one model, but these come from two: first "
            f"{bound.model!r} answered, then {now.model!r}."
        )
    if differs:
        raise Conflict(
            "Answers of one calibration must all be drawn alike, but these parts differ between its rows, or "
            f"have changed since the job began: {', '.join(differs)}."
        )


@dataclass(eq=False)
class Drawer:
    """Draws answers for one row after another, with lower priority than live scores.

    While the store is unavailable, the write of drawn answers is retried every `wait_s` seconds.
    """

    llm: LLM
    embedder: Embedder
    jobs: SqlJobs
    serving: Serving
    live_priority: LivePriority = field(default_factory=LivePriority)
    patience: RetryPolicy = field(default_factory=RetryPolicy)
    wait_s: float = 1.0

    def fingerprint(
        self, row: DevRow, embedder: EmbedderIdentity, drawn: Generation | None = None
    ) -> Fingerprint:
        """Return the fingerprint of the drawn answers to a row; without `drawn`, of answers drawn now."""
        request = row_request(self.serving, row, 1)
        identity = self.llm.identity(request)
        return service_fingerprint(identity.of(drawn) if drawn else identity, request.sampling, embedder)

    def generation_key(self, row: DevRow) -> Hashable:
        """Return a key that is equal for rows drawn alike. It does not depend on the model."""
        request = row_request(self.serving, row, 1)
        return replace(self.llm.identity(request), model=""), request.sampling

    async def learn_model(self, row: DevRow, notify: Notify) -> None:
        """Learn the name of the model from an answer; draws one if none has been drawn yet."""
        request = row_request(self.serving, row, 1)
        if not self.llm.identity(request).answered:
            await self.patience.keep_trying(lambda: self.llm.generate(request), notify)

    async def draw(self, job_id: str, line: int) -> None:
        """Draw and store the missing answers of a row, or store that the LLM server refuses the row.

        Raises JobEndedError, and the EigencalError that ends the job.
        """
        job, stored = await self.jobs.running(job_id), await self.jobs.row(job_id, line)
        try:
            await self._draw(job, stored, partial(self.jobs.note, job_id))
        except LLMError as error:
            if error.extra.get("llm_status") not in REFUSALS:
                raise
            refuse = partial(self.jobs.refuse, job_id, line, error.full_detail)
            await once_stored(refuse, self.wait_s)

    async def _draw(self, job: RunningJob, stored: DevRow, notify: Notify) -> None:
        wanted, bound = job.options.num_samples or self.serving.num_samples, job.fingerprint
        draws = stored.draws[:wanted]
        left = DRAWN_AGAIN * wanted - len(draws)
        complete = stored.complete
        while not complete:
            request = row_request(self.serving, stored, min(wanted - len(draws), left))
            draw = partial(self.live_priority.turn, partial(self.llm.generate, request))
            generation = await self.patience.keep_trying(draw, notify)
            embedder = await embedder_identity(self.embedder, self.patience, notify)
            drawn_with = self.fingerprint(stored, embedder, generation)
            if bound is None:
                # Before the first answer is stored, so that answers of another set-up are refused.
                first = await once_stored(partial(self.jobs.bind, job.id, drawn_with), self.wait_s)
                bound = first
            check_same(bound, drawn_with)
            draws = (*draws, *usable(generation.draws))[:wanted]
            left -= len(generation.draws)
            complete = len(draws) == wanted or left <= 0
            keep = partial(self.jobs.keep_draws, job.id, stored.line, draws, complete=complete)
            await once_stored(keep, self.wait_s)


class BrokenOffError(Exception):
    """Ends work in a thread, since a thread cannot be cancelled."""


async def in_thread(
    work: Callable[[OnDone], T], jobs: SqlJobs, job_id: str, stage: JobStage, total: int = WHOLE
) -> T:
    """Return the result of `work`, and store its progress in a stage of `total` units.

    If the caller is cancelled or the job has ended (JobEndedError), the next progress report of the work
    raises BrokenOffError in its thread. While the store is unavailable, only the shown progress is lost.
    """
    reached, over = 0, threading.Event()

    def report(done: int, of: int) -> None:
        nonlocal reached
        if over.is_set():
            raise BrokenOffError
        reached = total * done // of

    with contextlib.suppress(StoreUnavailable):
        await jobs.stage(job_id, stage, total)
    working = asyncio.ensure_future(asyncio.to_thread(work, report))
    try:
        while not (await asyncio.wait({working}, timeout=EVERY_S))[0]:
            with contextlib.suppress(StoreUnavailable):
                await jobs.progress(job_id, reached)
        return working.result()
    finally:
        over.set()
        working.cancel()


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """The rows of a job with the vectors of their texts.

    made_by: the embedder of every vector. vectors: one per text; place: the row of each text in `vectors`.
    sentences: by row; its claims are compared with them. None if the rows are whole answers.
    """

    rows: Sequence[DevRow]
    num_samples: int
    made_by: EmbedderIdentity
    vectors: NDArray[np.float32]
    place: dict[str, int]
    sentences: Sequence[Sentences] | None

    def material(self, compared: "Compared | None") -> DevSet:
        """Return the input of a fit. compared: the LLM's comparisons, if it compares the texts."""
        made_by, dimension = self.made_by, self.made_by.dimension
        same = () if compared is None else compared.same
        if compared is not None:
            made_by = compared_by(made_by, compared.model)
        prompts = [row.question for row in self.rows]
        questions = [self.vectors[self.place[text]] if text else None for text in prompts]
        if self.sentences is None:
            material = assemble(
                self.rows, self.num_samples, self.vectors, self.place, dimension, made_by.kernel, same
            )
            return replace(material, made_by=made_by, questions=questions)
        by_text = {text: self.vectors[i] for text, i in self.place.items()}
        material = claim_material(self.rows, self.sentences, by_text, self.num_samples, dimension)
        assert material.groups is not None
        return replace(material, made_by=made_by, questions=[questions[group] for group in material.groups])


@dataclass(eq=False)
class Embedding:
    """Embeds the distinct texts of a job in small chunks, with lower priority than live scores."""

    embedder: Embedder
    jobs: SqlJobs
    live_priority: LivePriority = field(default_factory=LivePriority)
    patience: RetryPolicy = field(default_factory=RetryPolicy)

    async def embedded(
        self, job: RunningJob, rows: Sequence[DevRow], num_samples: int, unit: Unit, kernel: Kernel
    ) -> EmbeddedRows:
        """Return the rows with the vectors that the kernel needs.

        Raises EmbedderUnavailable once patience ends, Conflict if the embedder changes, JobEndedError, and
        InvalidDevData for more sentences than fit into memory.
        """
        sentences = None
        if unit == "claim":
            sentences = await asyncio.to_thread(lambda: [sentences_of(row) for row in rows])
            of_rows = await asyncio.to_thread(claim_texts, rows, sentences)
        else:
            of_rows = await asyncio.to_thread(all_texts, rows, kernel)
        if len(of_rows) > MAX_TEXTS:
            raise InvalidDevData(
                f"The rows contain {len(of_rows)} sentences; at most {MAX_TEXTS} fit into memory."
            )
        # For each claim, in float64: m outcomes of m + 1 coordinates.
        size = 8 * sum(len(row.claims) for row in rows) * num_samples * (num_samples + 1)
        if unit == "claim" and size > MAX_CLAIMS_BYTES:
            raise InvalidDevData(
                f"Claims judged by {num_samples} answers each would take {size >> 20} MiB; "
                f"{MAX_CLAIMS_BYTES >> 20} are allowed. Send fewer rows, or ask for fewer answers."
            )
        # Questions last, so that the answers of a row stay consecutive.
        texts = list(dict.fromkeys([*of_rows, *(row.question for row in rows if row.question)]))
        notify = partial(self.jobs.note, job.id)
        await self.jobs.stage(job.id, "embedding", len(texts))
        identity = await embedder_identity(self.embedder, self.patience, notify, ask_anew=True)
        vectors = await self._embed(texts, identity, job.id)
        place = {text: i for i, text in enumerate(texts)}
        return EmbeddedRows(rows, num_samples, identity, vectors, place, sentences)

    async def _embed(
        self, texts: Sequence[str], identity: EmbedderIdentity, job_id: str
    ) -> NDArray[np.float32]:
        written, notify = time.monotonic(), partial(self.jobs.note, job_id)
        vectors = np.empty((len(texts), identity.dimension), dtype=np.float32)
        for begin in range(0, len(texts), EMBEDDED_AT_ONCE):
            chunk = texts[begin : begin + EMBEDDED_AT_ONCE]
            embed = partial(self.live_priority.turn, partial(self.embedder.embed, chunk))
            embedded = await self.patience.keep_trying(embed, notify)
            check_made_by(identity, embedded.made_by)
            vectors[begin : begin + len(chunk)] = embedded.vectors
            if time.monotonic() - written >= EVERY_S:
                written = time.monotonic()
                await self.jobs.progress(job_id, begin + len(chunk))
        return vectors


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """An LLM's comparisons of the texts of each row.

    same: by row, P(same) of its `texts_of`, (k, k). model: the LLM's name.
    """

    same: Sequence[NDArray[np.float64]]
    model: str


@dataclass(eq=False)
class Comparing:
    """Has the LLM compare the answers of a job, row by row, live scoring first; its replies are stored."""

    comparer: Comparer
    jobs: SqlJobs
    live_priority: LivePriority = field(default_factory=LivePriority)
    patience: RetryPolicy = field(default_factory=RetryPolicy)
    wait_s: float = 1.0

    async def compared(self, job: RunningJob, embedded: EmbeddedRows) -> Compared:
        """Return the LLM's comparisons of each row's answers, references and judged texts.

        If the LLM server refuses a row, its values are NaN. Raises Conflict when two models compare,
        JobEndedError, what the LLM raises once patience ends, and what it refuses if it takes no row.
        """
        notify, models = partial(self.jobs.note, job.id), set[str]()
        found = list[NDArray[np.float64]]()
        refused: EigencalError | None = None
        await self.jobs.stage(job.id, "comparing", len(embedded.rows))
        for i, row in enumerate(embedded.rows):
            if refused is not None and not models and i >= MOST_REFUSED:
                raise refused
            texts = texts_of(row)
            compare = partial(
                self.comparer.compare,
                row.question or "",
                texts,
                *order_of(row),
                priority=Priority.JOB,
                known=row.replies,
            )
            turn = partial(self.live_priority.turn, compare)
            try:
                comparison = await self.patience.keep_trying(turn, notify)
            except LLMError as error:
                if error.extra.get("llm_status") not in REFUSALS:
                    raise
                refused = error
                found.append(np.full((len(texts), len(texts)), np.nan))
            else:
                found.append(comparison.same)
                if comparison.replies.keys() - row.replies.keys():
                    keep = partial(self.jobs.keep_replies, job.id, row.line, comparison.replies)
                    await once_stored(keep, self.wait_s)
                if comparison.is_silent:
                    refused = LLMError(NO_REPLY)
                else:
                    models |= {comparison.model} - {""}
            if len(models) > 1:
                raise Conflict(f"The answers of one calibration were compared by two models: {models}.")
            with contextlib.suppress(StoreUnavailable):
                await self.jobs.progress(job.id, i + 1)
        if refused is not None and not models:
            raise refused
        return Compared(found, next(iter(models), ""))


def order_of(row: DevRow) -> tuple[list[int], Sequence[int]]:
    """Return the positions of the `texts_of` a row in the order of comparison, and those always compared.

    The judged text is first. The answers follow, the more frequent first. The first references are always
    compared.
    """
    texts, index = distinct([draw.text for draw in row.draws])
    answers = np.argsort(-np.bincount(index, minlength=len(texts)), kind="stable").tolist()
    end = len(texts) + len(row.right_texts)
    references = range(len(texts), min(len(texts) + REFERENCES_COMPARED, end))
    judged = [] if row.answer is None else [end]
    return [*judged, *answers], references


@dataclass(eq=False)
class Checking:
    """Has the LLM check the judged texts of a job, row by row, live scoring first; its replies are stored."""

    asker: Asker
    jobs: SqlJobs
    by_default: bool = True  # whether a job has self-checks if it does not say
    live_priority: LivePriority = field(default_factory=LivePriority)
    patience: RetryPolicy = field(default_factory=RetryPolicy)
    wait_s: float = 1.0

    async def check(self, job: RunningJob, rows: LabelledRows, *, drawn: bool) -> None:
        """Ask for the self-checks of the rows, if the job has them.

        drawn: the LLM drew the answers, so the job waits for it. Otherwise the rows are fitted without
        self-checks if it fails. Raises Conflict when two models reply, and JobEndedError.
        """
        options = job.options
        if not (self.by_default if options.self_check is None else options.self_check):
            return
        notify = partial(self.jobs.note, job.id)
        patience = self.patience if drawn else replace(self.patience, give_up_s=-1.0)
        texts = await asyncio.to_thread(rows.texts_to_check)
        found, repliers = list[dict[str, float | None]](), set[str]()
        num_failed, has_replied = 0, False
        await self.jobs.stage(job.id, "checking", len(texts))
        for i, of_row in enumerate(texts):
            row = rows.row(i)
            question = row.whole_question
            if not question:
                found.append({})
                continue
            questions = [is_correct(question, text) for text in of_row]
            ask = partial(
                self.asker.ask, questions, priority=Priority.JOB, known=row.replies, deadline_s=MAX_CHECK_S
            )
            try:
                replies = await patience.keep_trying(partial(self.live_priority.turn, ask), notify)
            except EigencalError as error:
                if drawn and error.extra.get("llm_status") not in REFUSALS:
                    raise
                rows.why_unchecked, num_failed = error.full_detail, num_failed + 1
                found.append({})
                is_refusal = error.extra.get("llm_status") in REFUSALS
                is_useless = not is_refusal or num_failed > LEFT_OUT * len(texts)
                if (is_useless and not drawn) or num_failed == i + 1 >= MOST_REFUSED:
                    break
                continue
            found.append(dict(zip(of_row, replies.yes, strict=True)))
            has_replied = has_replied or bool(replies.kept)
            if not has_replied and i + 1 >= MOST_REFUSED:
                break
            repliers |= {replies.by}
            if len(repliers) > 1 and not drawn:
                rows.why_unchecked, found = f"Two models replied: {sorted(repliers)}.", []
                break
            if len(repliers) > 1:
                raise Conflict(f"The answers of one calibration were checked by two models: {repliers}.")
            if replies.kept.keys() - row.replies.keys():
                await once_stored(
                    partial(self.jobs.keep_replies, job.id, row.line, replies.kept), self.wait_s
                )
            with contextlib.suppress(StoreUnavailable):
                await self.jobs.progress(job.id, i + 1)
        rows.p_true = [*found, *[{}] * (len(texts) - len(found))]
        if rows.is_checked:
            rows.checked_by, rows.why_unchecked = checked_by(next(iter(repliers))), ""
        else:
            rows.why_unchecked = rows.why_unchecked or NO_REPLY


@dataclass(eq=False)
class Calibrator:
    """Finishes calibration jobs. A job may be interrupted at any point, and then runs again from its start.

    Equal rows and answers give equal figures, on any replica and after any number of interruptions.
    """

    jobs: SqlJobs
    calibrations: SqlCalibrations
    drawer: Drawer
    embedding: Embedding
    comparing: Comparing
    checking: Checking
    compare: Compare = "embeddings"  # default of jobs
    resamples: Resamples = DEFAULT

    async def finish(self, job: RunningJob) -> None:
        """Embed, fit, report, store and end the job.

        Raises JobEndedError, the EigencalError that ends the job, and ReplacedError.
        """
        options, embedding = job.options, self.embedding
        notify = partial(self.jobs.note, job.id)
        identity = await embedder_identity(embedding.embedder, embedding.patience, notify, ask_anew=True)
        stored = answered(await self.jobs.rows(job.id))
        drawn = any(row.samples is None for row in stored)
        default = self.drawer.serving.num_samples if drawn else None
        rows, num_samples, copies = usable_rows(
            stored, options.num_samples or default, rng(options.seed, Stream.COPIES), options.unit
        )
        fingerprint = await self._fingerprint(job, stored, identity, drawn=drawn)
        by_llm = options.unit == "answer" and (options.compare or self.compare) == "llm"
        kernel: Kernel = "llm" if by_llm else embedding.embedder.kernel
        embedded = await embedding.embedded(job, rows, num_samples, options.unit, kernel)
        check_same(fingerprint, with_embedder(fingerprint, embedded.made_by))
        compared = None
        if by_llm:
            compared = await self.comparing.compared(job, embedded)
            compared = replace(compared, model=compared.model or fingerprint.model)
            fingerprint = with_embedder(fingerprint, compared_by(identity, compared.model))
        all_rows = await asyncio.to_thread(embedded.material, compared)
        material = await asyncio.to_thread(
            without_near_copies, all_rows, rng(options.seed, Stream.NEAR_COPIES)
        )
        num_near = len(all_rows.rows) - len(material.rows)
        labelled = await asyncio.to_thread(LabelledRows, material)
        await self.checking.check(job, labelled, drawn=drawn)
        fingerprint = replace(fingerprint, self_check=labelled.checked_by)
        await self.calibrations.refresh()
        active, compared_at = self.calibrations.active(fingerprint.key()), self.calibrations.num_activations()
        known = None if options.bundled else await self.calibrations.bundled(fingerprint.key())
        # The active calibration may have been fitted on some of these rows, so it cannot be compared on them.
        rival = known if known is not None and active is not None and active.origin == "both" else active
        fitted = await self._fit(job, labelled, rival, known)
        if fitted.method == "evidence":
            supplied = fingerprint.source == CALLER
            fingerprint = replace(fingerprint, evidence="supplied" if supplied else "token_sums")
        calibration = Calibration(
            id=new_id("cal"),
            method=fitted.method,
            fingerprint=fingerprint,
            num_samples=num_samples,
            parameters=fitted.parameters,
            created_at=datetime.now(UTC),
            name=options.name,
            evidence=fitted.evidence_table,
            selectors=fitted.selectors(),
            origin="bundled" if options.bundled else fitted.origin,
            curvatures=await asyncio.to_thread(curvatures, labelled) if options.bundled else {},
            judged={m: point.judged for m, point in fitted.decided.items()} if options.bundled else {},
            reference=conformal_reference(material, rng(options.seed, Stream.REFERENCE)),
        )
        refused = [row for row in stored if row.refused is not None]
        # On the bundled questions it would be better than a calibration on one's own.
        is_own = options.bundled and active is not None and active.origin != "bundled"
        asked: ActivateOption = "never" if is_own else options.activate
        target = self.drawer.serving.target()

        # The report of a cancelled job runs on in its thread for seconds, since it has no point to stop at.
        def work(_: OnDone) -> tuple[Promotion, dict[str, Any]]:
            context = CrossValidated(fitted, seed=options.seed, resamples=self.resamples)
            promotion = promote(
                calibration,
                active,
                fitted,
                context,
                rival=rival,
                asked=asked,
                target_error=target.error,
                confidence=target.confidence,
                num_rows=job.num_rows,
                refused=len(refused),
                corrects=options.corrects,
            )
            return promotion, make_report(
                fitted,
                calibration,
                context,
                promotion,
                target,
                num_rows=job.num_rows,
                copies=copies + num_near,
                refused=refused,
            )

        promotion, report = await in_thread(work, self.jobs, job.id, "reporting", total=1)
        report["job_id"] = job.id
        recommended = promotion.num_samples
        if recommended in calibration.selectors:  # with this number of answers it can decide
            calibration = replace(calibration, recommended=recommended)
        # Verdicts on claims are in the data, with several for a line.
        judged = [] if options.unit == "claim" else fitted.rows.verdicts
        full = [material.rows[i].line for i in material.full[: len(judged)]]
        succeed = partial(
            self.jobs.succeed,
            job.id,
            calibration,
            report,
            len(rows) - num_near,
            activate=promotion.activated,
            compared_at=compared_at,
            verdicts=dict(zip(full, judged, strict=True)),
        )
        await once_stored(succeed, self.drawer.wait_s)
        logger.info("job %s succeeded: calibration %s. %s", job.id, calibration.id, promotion.reason)

    async def _fingerprint(
        self, job: RunningJob, stored: list[DevRow], identity: EmbedderIdentity, *, drawn: bool
    ) -> Fingerprint:
        """Return the fingerprint of the answers: from the first draw, or as claimed by the operator."""
        unit = job.options.unit
        if not drawn and job.options.drawn_by == "caller":
            return replace(caller_fingerprint(job.options.source_label, identity), unit=unit)
        if not drawn:
            await self.drawer.learn_model(stored[0], partial(self.jobs.note, job.id))
        kinds = {row.messages is None: row for row in stored}
        now = [self.drawer.fingerprint(row, identity) for row in kinds.values()]
        claimed = job.fingerprint if drawn else now[0]
        if claimed is None:
            raise InvalidDevData("The answers were drawn with an unknown set-up.")
        for current in now:
            # The model was checked when the answers were drawn. Another model may answer by now.
            check_same(claimed, current.drawn_as(claimed) if drawn else current)
        return replace(claimed, unit=unit)

    async def _fit(
        self, job: RunningJob, rows: LabelledRows, active: Calibration | None, known: Calibration | None
    ) -> Fitted:
        def work(done: OnDone) -> Fitted:
            return fit_all(
                rows,
                job.options.method,
                active=active,
                seed=job.options.seed,
                known=known,
                progress=done,
            )

        return await in_thread(work, self.jobs, job.id, "fitting")
