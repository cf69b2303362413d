"""The second half of a calibration's job: embed its answers, fit, report, store."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, CalibrationSource
from service.calibration.default import PRIOR_WEIGHT, packaged
from service.calibration.fingerprint import CALLER, Fingerprint, caller_fingerprint, with_embedder
from service.calibration.fitting import WHOLE, Fitted, Stream, fit_all, rng
from service.calibration.labels import Labels, label
from service.calibration.material import (
    Material,
    all_texts,
    answered,
    assemble,
    check_made_by,
    conformal_reference,
    usable_rows,
)
from service.calibration.rows import StoredRow
from service.embedding.outcomes import outcome_vectors, texts_to_embed
from service.embedding.port import Embedded, Embedder, EmbedderIdentity
from service.errors import InvalidDevData
from service.ids import new_id
from service.jobs.drawing import Drawer, check_same
from service.jobs.progress import Progress, in_thread
from service.jobs.store import ActiveChangedError, RunningJob, SqlJobs
from service.jobs.waiting import LiveFirst, Notify, Patience, embedder_identity
from service.report.model import Report
from service.report.report import FinishedFit, make_report
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.subsets import OnDone

logger = logging.getLogger(__name__)
EMBEDDED_AT_ONCE = 16  # texts: live scoring gets its turn in between


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

    async def material(self, job: RunningJob, rows: Sequence[StoredRow], num_samples: int) -> Material:
        """Return the rows as vectors, all of one embedder.

        Raises EmbedderUnavailable once patience ends, Conflict when the embedder changes, JobEndedError.
        """
        # Questions come last, so that the answers of a row still follow one another.
        asked = [one.row.question for one in rows]
        texts = list(dict.fromkeys([*all_texts(rows), *(text for text in asked if text)]))
        progress = Progress(self.jobs, job.id, "embedding", len(texts))
        notify = partial(self.jobs.note, job.id)
        await progress.begin()
        embedded = texts_to_embed(texts, self.embedder.empty_answers)
        identity = await self.identity(notify)
        vectors = outcome_vectors(texts, await self._embed(embedded, identity, progress, notify))
        place = {text: i for i, text in enumerate(texts)}
        questions = [vectors[place[text], : identity.dimension] if text else None for text in asked]
        material = assemble(rows, num_samples, vectors, place, identity.dimension)
        return replace(material, made_by=identity, questions=questions)

    async def _embed(
        self, texts: Sequence[str], identity: EmbedderIdentity, progress: Progress, notify: Notify
    ) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), identity.dimension), dtype=np.float32)
        for begin in range(0, len(texts), EMBEDDED_AT_ONCE):
            chunk = texts[begin : begin + EMBEDDED_AT_ONCE]
            embedded = await self.patience.keep_trying(partial(self._in_turn, chunk), notify)
            check_made_by(identity, embedded.made_by)
            vectors[begin : begin + len(chunk)] = embedded.vectors
            await progress.advance(len(chunk))
        return vectors

    async def _in_turn(self, texts: Sequence[str]) -> Embedded:
        async with self.live_first.turn():
            return await self.embedder.embed(texts)


@dataclass(frozen=True, slots=True)
class _Loaded:
    rows: list[StoredRow]
    num_samples: int
    copies: int
    fingerprint: Fingerprint
    refused: list[StoredRow]


@dataclass(eq=False)
class Calibrator:
    """Finishes calibration jobs; may be stopped anywhere, and run again from its start.

    Equal rows and answers give equal numbers, whoever drew them and however often the run was broken off.
    """

    jobs: SqlJobs
    calibrations: CalibrationSource
    drawer: Drawer
    embedding: Embedding
    resamples: Resamples = DEFAULT

    async def finish(self, job: RunningJob) -> None:
        """Embed, fit, report, store, end the job.

        Raises JobEndedError, or the EigencalError that the job fails with.
        """
        loaded = await self._load(job)
        material = await self.embedding.material(job, loaded.rows, loaded.num_samples)
        if material.made_by is not None:  # another, when it has changed meanwhile
            check_same(loaded.fingerprint, with_embedder(loaded.fingerprint, material.made_by))
        while not await self._end(job, loaded, material):
            pass

    async def _end(self, job: RunningJob, loaded: _Loaded, material: Material) -> bool:
        """Fit, compare with the active calibration, store; False when another became active meanwhile."""
        key = loaded.fingerprint.key()
        active = self.calibrations.active(key)
        fitted = await self._fit(job, material, active)
        calibration = self._calibration(job, loaded, material, fitted)
        target = self.drawer.serving.target()
        outcome = FinishedFit(
            calibration,
            job.options,
            material,
            fitted,
            active,
            job.num_rows,
            target,
            loaded.copies,
            loaded.refused,
        )

        def work(done: OnDone) -> tuple[Report, Labels]:
            done(0, 1)
            report = make_report(outcome, self.resamples)
            done(1, 1)
            return report, label(material)

        report, labels = await in_thread(work, partial(Progress, self.jobs, job.id, "reporting"))
        if self.calibrations.active(key) != active:
            return False  # another became active meanwhile: compare with that one
        report["job_id"] = job.id
        recommended = report["opening"]["num_samples"]
        if recommended in calibration.selectors:  # it can serve so many, and decide by them
            calibration = replace(calibration, recommended=recommended)
        full = [material.rows[i].row.line for i in material.full]
        decision = report["decision"]
        try:
            await self.jobs.succeed(
                job.id,
                calibration,
                cast("dict[str, Any]", report),
                len(loaded.rows),
                activate=decision["activated"],
                compared_with=None if active is None else active.id,
                verdicts=dict(zip(full, labels.verdicts, strict=True)),
            )
        except ActiveChangedError:
            return False
        logger.info("job %s succeeded: calibration %s. %s", job.id, calibration.id, decision["reason"])
        return True

    async def _load(self, job: RunningJob) -> _Loaded:
        identity = await self.embedding.identity(partial(self.jobs.note, job.id))
        rows = [one async for one in self.jobs.rows(job.id)]
        stored = answered(rows, identity.empty_answers)
        drawn = any(one.row.samples is None for one in stored)
        asked = job.options.num_samples
        if asked is None and drawn:
            asked = self.drawer.serving.num_samples
        fingerprint = await self._fingerprint(job, stored, identity, drawn=drawn)
        refused = [one for one in stored if one.refused is not None]
        usable = usable_rows(stored, asked, rng(job.options.seed, Stream.COPIES))
        return _Loaded(*usable, fingerprint, refused)

    async def _fingerprint(
        self, job: RunningJob, stored: list[StoredRow], identity: EmbedderIdentity, *, drawn: bool
    ) -> Fingerprint:
        """Return what the answers were drawn with: as bound by the first draw, or as the operator vouches."""
        if not drawn and job.options.drawn_by == "caller":
            return caller_fingerprint(job.options.source_label, identity)
        if not drawn:
            await self.drawer.learn_model(stored[0].row, partial(self.jobs.note, job.id))
        kinds = {one.row.messages is None: one.row for one in stored}
        now = [self.drawer.fingerprint(row, identity) for row in kinds.values()]
        claimed = job.fingerprint if drawn else now[0]
        if claimed is None:
            raise InvalidDevData("The answers were drawn with an unknown set-up.")
        for one in now:
            # Which model drew the answers was seen when they came; another may answer by now.
            check_same(claimed, one.drawn_as(claimed) if drawn else one)
        return claimed

    async def _fit(self, job: RunningJob, material: Material, active: Calibration | None) -> Fitted:
        weight = PRIOR_WEIGHT if job.options.prior_weight is None else job.options.prior_weight

        def work(done: OnDone) -> Fitted:
            done(0, WHOLE)
            return fit_all(
                material,
                job.options.method,
                active=active,
                seed=job.options.seed,
                resamples=self.resamples,
                priors=partial(packaged().prior, weight=weight),
                model_priors=partial(packaged().model_prior, dimension=material.dimension, weight=weight),
                progress=done,
            )

        return await in_thread(work, partial(Progress, self.jobs, job.id, "fitting"))

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
            selectors=fitted.decided.selectors(),
            reference=conformal_reference(material, rng(job.options.seed, Stream.REFERENCE)),
        )
