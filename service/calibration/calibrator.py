"""The use case behind /calibrate: draw what is missing, embed, fit, report, store. It knows no queue."""

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, cast

from service.calibration.calibration import Calibration, CalibrationSource
from service.calibration.fitting import WHOLE, Fitted, Stream, fit_all, rng
from service.calibration.labels import label
from service.calibration.material import Embedding, Material, answered, conformal_reference, usable_rows
from service.errors import InvalidDevData
from service.ids import new_id
from service.jobs.drawing import Drawer
from service.jobs.model import JobStage, check_same
from service.jobs.store import ActiveChangedError, ClaimedJob, JobStore, Progress, StoredRow, in_thread
from service.llm.port import CALLER, EmbedderIdentity, Fingerprint, caller_fingerprint, with_embedder
from service.report.report import FinishedFit, make_report
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.subsets import OnDone

logger = logging.getLogger(__name__)


class Pipeline(Protocol):
    """What a queue of jobs runs; each part may be run again from its start after a crash."""

    async def draw(self, job: ClaimedJob) -> None:
        """Draw the missing answers."""

    async def finish(self, job: ClaimedJob) -> None:
        """Do the rest and end the job."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    rows: list[StoredRow]
    num_samples: int
    copies: int
    fingerprint: Fingerprint
    refused: list[StoredRow]


class Calibrator:
    """Runs calibration jobs. A run writes under its lease only and may be stopped anywhere.

    Equal rows and answers give equal numbers, whoever drew them and however often the run was broken off.
    """

    def __init__(
        self,
        jobs: JobStore,
        calibrations: CalibrationSource,
        drawer: Drawer,
        embedding: Embedding,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        resamples: Resamples = DEFAULT,
    ) -> None:
        self._jobs = jobs
        self._calibrations = calibrations
        self._drawer = drawer
        self._embedding = embedding
        self._now = now
        self._resamples = resamples

    async def draw(self, job: ClaimedJob) -> None:
        """Draw the missing answers. Raises LeaseLostError, or the EigencalError that the job fails with."""
        missing = 0
        async for _ in self._jobs.stored_rows(job.lease.job_id, incomplete_only=True):
            missing += 1
        done = job.num_rows - missing
        progress = Progress(self._jobs, job.lease, "sampling", job.num_rows, done=done)
        await progress.begin()
        if missing:
            await self._drawer.draw(job, await self._embedding.identity(progress), progress)
        elif job.options.kind == "calibrate" and job.options.drawn_by == "service" and not job.fingerprint:
            first = await anext(self._jobs.stored_rows(job.lease.job_id))
            await self._drawer.learn_model(first.row, progress)

    async def finish(self, job: ClaimedJob) -> None:
        """Embed, fit, report, store, end the job. Raises as `draw` does."""
        loaded = await self._load(job)
        material = await self._embedding.material(
            loaded.rows, loaded.num_samples, functools.partial(self._stage, job, "embedding")
        )
        if material.made_by is not None:  # another, when it has changed meanwhile
            check_same(loaded.fingerprint, with_embedder(loaded.fingerprint, material.made_by))
        while not await self._end(job, loaded, material):
            pass

    async def _end(self, job: ClaimedJob, loaded: _Loaded, material: Material) -> bool:
        """Fit, compare with the active calibration, store; False when another became active meanwhile."""
        key = loaded.fingerprint.key()
        active = self._calibrations.active(key)
        fitted = await self._fit(job, material, active)
        calibration = self._calibration(job, loaded, material, fitted)
        target = self._drawer.serving.target()
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
        await self._stage(job, "reporting", 1).begin()
        report = await asyncio.to_thread(make_report, outcome, self._resamples)
        if self._calibrations.active(key) != active:
            return False  # another became active meanwhile: compare with that one
        report["job_id"] = job.lease.job_id
        labels = await asyncio.to_thread(label, material)
        full = [material.rows[i].row.line for i in material.full]
        decision = report["decision"]
        try:
            await self._jobs.succeed(
                job.lease,
                calibration,
                cast("dict[str, Any]", report),
                len(loaded.rows),
                activate=decision["activated"],
                compared_with=None if active is None else active.id,
                verdicts=dict(zip(full, labels.verdicts, strict=True)),
            )
        except ActiveChangedError:
            return False
        logger.info(
            "job %s succeeded: calibration %s. %s", job.lease.job_id, calibration.id, decision["reason"]
        )
        return True

    def _stage(self, job: ClaimedJob, stage: JobStage, total: int) -> Progress:
        return Progress(self._jobs, job.lease, stage, total)

    async def _load(self, job: ClaimedJob) -> _Loaded:
        identity = await self._embedding.identity(self._stage(job, "embedding", 0))
        rows = [one async for one in self._jobs.stored_rows(job.lease.job_id)]
        stored = answered(rows, identity.empty_answers)
        drawn = any(one.row.samples is None for one in stored)
        asked = job.options.num_samples
        if asked is None and drawn:
            asked = self._drawer.serving.num_samples
        fingerprint = await self._fingerprint(job, stored, identity, drawn=drawn)
        refused = [one for one in stored if one.refused is not None]
        found = usable_rows(stored, asked, rng(job.options.seed, Stream.COPIES))
        return _Loaded(*found, fingerprint, refused)

    async def _fingerprint(
        self, job: ClaimedJob, stored: list[StoredRow], identity: EmbedderIdentity, *, drawn: bool
    ) -> Fingerprint:
        """Return what the answers were drawn with: as bound by the first draw, or as the operator vouches."""
        if not drawn and job.options.drawn_by == "caller":
            return caller_fingerprint(job.options.source_label, identity)
        if not drawn:
            await self._drawer.learn_model(stored[0].row, self._stage(job, "sampling", job.num_rows))
        kinds = {one.row.messages is None: one.row for one in stored}
        now = [self._drawer.fingerprint(row, identity) for row in kinds.values()]
        claimed = await self._jobs.fingerprint(job.lease.job_id) if drawn else now[0]
        if claimed is None:
            raise InvalidDevData("The answers were drawn with an unknown set-up.")
        for one in now:
            # Which model drew the answers was seen when they came; another may answer by now.
            check_same(claimed, one.drawn_as(claimed) if drawn else one)
        return claimed

    async def _fit(self, job: ClaimedJob, material: Material, active: Calibration | None) -> Fitted:
        options = job.options

        def work(report: OnDone) -> Fitted:
            report(0, WHOLE)
            return fit_all(
                material,
                options.method,
                active=active,
                seed=options.seed,
                resamples=self._resamples,
                progress=report,
            )

        return await in_thread(work, functools.partial(self._stage, job, "fitting"))

    def _calibration(
        self, job: ClaimedJob, loaded: _Loaded, material: Material, fitted: Fitted
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
            created_at=self._now(),
            name=job.options.name,
            evidence=fitted.evidence_table,
            deciders=fitted.decided.deciders(),
            reference=conformal_reference(material, rng(job.options.seed, Stream.REFERENCE)),
        )
