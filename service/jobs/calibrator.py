"""The second half of a calibration's job: embed its answers, fit, report, store; and its progress."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import (
    CALLER,
    Calibration,
    Fingerprint,
    Unit,
    caller_fingerprint,
    with_embedder,
)
from service.calibration.default import CLAIM_PRIOR_WEIGHT, PRIOR_WEIGHT, packaged, packaged_for_claims
from service.calibration.fitting import WHOLE, Fitted, Stream, fit_all, rng
from service.calibration.material import (
    Material,
    Sentences,
    all_texts,
    answered,
    assemble,
    check_made_by,
    claim_material,
    claim_texts,
    conformal_reference,
    sentences_of,
    usable_rows,
)
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.embedding.port import Embedded, Embedder, EmbedderIdentity, outcome_vectors, texts_to_embed
from service.errors import InvalidDevData, StoreUnavailable
from service.ids import new_id
from service.jobs.drawing import Drawer, check_same
from service.jobs.model import JobStage
from service.jobs.store import RunningJob, SqlJobs
from service.jobs.waiting import LiveFirst, Notify, Patience, embedder_identity
from service.report.report import make_report
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.subsets import OnDone

T = TypeVar("T")
logger = logging.getLogger(__name__)
EVERY_S = 0.5  # between two writes of how far a stage is
MAX_TEXTS = 250_000  # of the claims of a job, as of uploads
MAX_CLAIMS_BYTES = 1 << 30
EMBEDDED_AT_ONCE = 16  # texts: live scoring gets its turn in between


class BrokenOffError(Exception):
    """Ends work in its thread, which cannot be cancelled."""


async def in_thread(
    work: Callable[[OnDone], T], jobs: SqlJobs, job_id: str, stage: JobStage, total: int = WHOLE
) -> T:
    """Return what `work` returns; its reports are the progress of a stage of so many units.

    When the caller is cancelled, or the job has ended (JobEndedError), the next report of the work raises
    BrokenOffError there. A store that fails meanwhile costs no more than what would have been shown.
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


@dataclass(eq=False)
class Embedding:
    """Embeds the distinct texts of a job in small chunks, live scoring first."""

    embedder: Embedder
    jobs: SqlJobs
    live_first: LiveFirst = field(default_factory=LiveFirst)
    patience: Patience = field(default_factory=Patience)

    async def identity(self, notify: Notify) -> EmbedderIdentity:
        """Return what decides the vectors, once the embedder is there to tell."""
        return await embedder_identity(self.embedder, self.patience, notify, ask_anew=True)

    async def material(
        self, job: RunningJob, rows: Sequence[DevRow], num_samples: int, unit: Unit = "answer"
    ) -> Material:
        """Return the rows, or their claims, as vectors, all of one embedder.

        Raises EmbedderUnavailable once patience ends, Conflict when the embedder changes, JobEndedError, and
        InvalidDevData for more sentences than are held in memory.
        """
        asked, said = [one.question for one in rows], list[Sentences]()
        if unit == "claim":
            said = await asyncio.to_thread(lambda: [sentences_of(one) for one in rows])
        of_rows = claim_texts(rows, said) if unit == "claim" else all_texts(rows)
        if len(of_rows) > MAX_TEXTS:
            raise InvalidDevData(
                f"The rows hold {len(of_rows)} sentences; {MAX_TEXTS} may be held in memory."
            )
        # Of each claim the vectors of m outcomes of m + 1 coordinates, in float64.
        size = 8 * sum(len(one.claims) for one in rows) * num_samples * (num_samples + 1)
        if unit == "claim" and size > MAX_CLAIMS_BYTES:
            raise InvalidDevData(
                f"Claims judged by {num_samples} answers each would take {size >> 20} MiB; "
                f"{MAX_CLAIMS_BYTES >> 20} are allowed. Send fewer rows, or ask for fewer answers."
            )
        # Questions come last, so that the answers of a row still follow one another.
        texts = list(dict.fromkeys([*of_rows, *(text for text in asked if text)]))
        notify = partial(self.jobs.note, job.id)
        await self.jobs.stage(job.id, "embedding", len(texts))
        embedded = texts_to_embed(texts, self.embedder.empty_answers)
        identity = await self.identity(notify)
        vectors = outcome_vectors(texts, await self._embed(embedded, identity, job.id))
        place = {text: i for i, text in enumerate(texts)}
        questions = [vectors[place[text], : identity.dimension] if text else None for text in asked]
        if unit == "answer":
            material = assemble(rows, num_samples, vectors, place, identity.dimension)
            return replace(material, made_by=identity, questions=questions)
        of_text = {text: vectors[i] for text, i in place.items()}
        material = await asyncio.to_thread(
            claim_material, rows, said, of_text, num_samples, identity.dimension
        )
        assert material.groups is not None
        asked_of = [questions[group] for group in material.groups]
        return replace(material, made_by=identity, questions=asked_of)

    async def _embed(
        self, texts: Sequence[str], identity: EmbedderIdentity, job_id: str
    ) -> NDArray[np.float32]:
        written, notify = time.monotonic(), partial(self.jobs.note, job_id)
        vectors = np.empty((len(texts), identity.dimension), dtype=np.float32)
        for begin in range(0, len(texts), EMBEDDED_AT_ONCE):
            chunk = texts[begin : begin + EMBEDDED_AT_ONCE]
            embedded = await self.patience.keep_trying(partial(self._in_turn, chunk), notify)
            check_made_by(identity, embedded.made_by)
            vectors[begin : begin + len(chunk)] = embedded.vectors
            if time.monotonic() - written >= EVERY_S:
                written = time.monotonic()
                await self.jobs.progress(job_id, begin + len(chunk))
        return vectors

    async def _in_turn(self, texts: Sequence[str]) -> Embedded:
        async with self.live_first.turn():
            return await self.embedder.embed(texts)


@dataclass(frozen=True, slots=True)
class _Loaded:
    rows: list[DevRow]
    num_samples: int
    copies: int
    fingerprint: Fingerprint
    refused: list[DevRow]


@dataclass(eq=False)
class Calibrator:
    """Finishes calibration jobs; may be stopped anywhere, and run again from its start.

    Equal rows and answers give equal numbers, whoever drew them and however often the run was broken off.
    """

    jobs: SqlJobs
    calibrations: SqlCalibrations
    drawer: Drawer
    embedding: Embedding
    resamples: Resamples = DEFAULT

    async def finish(self, job: RunningJob) -> None:
        """Embed, fit, report, store, end the job.

        Raises JobEndedError, or the EigencalError that the job fails with.
        """
        loaded = await self._load(job)
        material = await self.embedding.material(job, loaded.rows, loaded.num_samples, job.options.unit)
        if material.made_by is not None:  # another, when it has changed meanwhile
            check_same(loaded.fingerprint, with_embedder(loaded.fingerprint, material.made_by))
        active = self.calibrations.active(loaded.fingerprint.key())
        fitted = await self._fit(job, material, active)
        calibration = self._calibration(job, loaded, material, fitted)
        target = self.drawer.serving.target()

        def work(_: OnDone) -> dict[str, Any]:
            return make_report(
                fitted,
                calibration,
                job.options,
                target,
                num_rows=job.num_rows,
                active=active,
                copies=loaded.copies,
                refused=loaded.refused,
                resamples=self.resamples,
            )

        report = await in_thread(work, self.jobs, job.id, "reporting", total=1)
        report["job_id"] = job.id
        recommended = report["opening"]["num_samples"]
        if recommended in calibration.selectors:  # it can serve so many, and decide by them
            calibration = replace(calibration, recommended=recommended)
        # Verdicts on claims are the data's own; there are several on a line.
        judged = [] if job.options.unit == "claim" else fitted.rows.verdicts
        full = [material.rows[i].line for i in material.full[: len(judged)]]
        decision = report["decision"]
        await self.jobs.succeed(
            job.id,
            calibration,
            report,
            len(loaded.rows),
            activate=decision["activated"],
            compared_with=None if active is None else active.id,
            verdicts=dict(zip(full, judged, strict=True)),
        )
        logger.info("job %s succeeded: calibration %s. %s", job.id, calibration.id, decision["reason"])

    async def _load(self, job: RunningJob) -> _Loaded:
        identity = await self.embedding.identity(partial(self.jobs.note, job.id))
        rows = [one async for one in self.jobs.rows(job.id)]
        stored = answered(rows, identity.empty_answers)
        drawn = any(one.samples is None for one in stored)
        asked = job.options.num_samples
        if asked is None and drawn:
            asked = self.drawer.serving.num_samples
        usable = usable_rows(stored, asked, rng(job.options.seed, Stream.COPIES), job.options.unit)
        fingerprint = await self._fingerprint(job, stored, identity, drawn=drawn)
        refused = [one for one in stored if one.refused is not None]
        return _Loaded(*usable, fingerprint, refused)

    async def _fingerprint(
        self, job: RunningJob, stored: list[DevRow], identity: EmbedderIdentity, *, drawn: bool
    ) -> Fingerprint:
        """Return what the answers were drawn with: as bound by the first draw, or as the operator vouches."""
        unit = job.options.unit
        if not drawn and job.options.drawn_by == "caller":
            return replace(caller_fingerprint(job.options.source_label, identity), unit=unit)
        if not drawn:
            await self.drawer.learn_model(stored[0], partial(self.jobs.note, job.id))
        kinds = {one.messages is None: one for one in stored}
        now = [self.drawer.fingerprint(row, identity) for row in kinds.values()]
        claimed = job.fingerprint if drawn else now[0]
        if claimed is None:
            raise InvalidDevData("The answers were drawn with an unknown set-up.")
        for one in now:
            # Which model drew the answers was seen when they came; another may answer by now.
            check_same(claimed, one.drawn_as(claimed) if drawn else one)
        return replace(claimed, unit=unit)

    async def _fit(self, job: RunningJob, material: Material, active: Calibration | None) -> Fitted:
        asked, default, usual, claims = job.options.prior_weight, packaged(), PRIOR_WEIGHT, 1.0
        if material.groups is not None:
            default, usual = packaged_for_claims(), CLAIM_PRIOR_WEIGHT
            claims = material.groups.size / np.unique(material.groups).size
        weight = claims * (usual if asked is None else asked)

        def work(done: OnDone) -> Fitted:
            return fit_all(
                material,
                job.options.method,
                active=active,
                seed=job.options.seed,
                resamples=self.resamples,
                priors=partial(default.prior, weight=weight),
                model_priors=partial(default.model_prior, dimension=material.dimension, weight=weight),
                progress=done,
            )

        return await in_thread(work, self.jobs, job.id, "fitting")

    def _calibration(
        self, job: RunningJob, loaded: _Loaded, material: Material, fitted: Fitted
    ) -> Calibration:
        fingerprint = loaded.fingerprint
        if fitted.method == "evidence":
            supplied = fingerprint.source == CALLER
            fingerprint = replace(fingerprint, evidence="supplied" if supplied else "token_sums")
        return Calibration(
            id=new_id("cal"),
            method=fitted.method,
            fingerprint=fingerprint,
            num_samples=loaded.num_samples,
            parameters=fitted.parameters,
            created_at=datetime.now(UTC),
            name=job.options.name,
            evidence=fitted.evidence_table,
            selectors=fitted.selectors(),
            reference=conformal_reference(material, rng(job.options.seed, Stream.REFERENCE)),
        )
