"""The use case behind POST /evaluate: the command's experiments, as a durable job."""

import functools
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from service.calibration.fingerprint import Fingerprint
from service.calibration.fitting import Stream, rng
from service.calibration.material import (
    Material,
    answered,
    check_made_by,
    full_number,
    usable_rows,
)
from service.calibration.rows import StoredRow
from service.embedding.port import Embedder
from service.evaluation.experiments import FileFacts, Inputs, drawn, make_results, not_drawn
from service.jobs.calibrator import Embedding
from service.jobs.progress import Progress, in_thread
from service.jobs.store import RunningJob, SqlJobs
from service.report.bench import Bench, make_split
from service.report.model import DataFile, Provenance, Results, provenance
from service.report.model import DrawnAnswers as AnswersPart
from service.spectral.resampling import OnDone

logger = logging.getLogger(__name__)

COMMAND_ONLY = (
    "A job draws at one sampling temperature; the command `python -m service evaluate` tries several."
)


class Evaluator:
    """Runs evaluation jobs; one embedder, the service's own. Rows 1 .. `dev_rows` are dev, the rest test."""

    def __init__(
        self,
        jobs: SqlJobs,
        embedder: Embedder,
        embedding: Embedding,
        *,
        version: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs = jobs
        self._embedder = embedder
        self._embedding = embedding
        self._version = version
        self._now = now

    async def finish(self, job: RunningJob) -> None:
        """Embed, run the experiments, store the results, end the job. Raises as `Calibrator.finish` does."""
        dev, test = await self._rows(job)
        facts = _facts(dev, job), _facts(test, job)
        # One m for both files: best parameters move with m, so a fit is judged at its own.
        m = min(one.answers for one in facts)
        materials = [await self._material(job, rows, m) for rows in (dev, test)]
        # An embedding server may change its model between the two files.
        check_made_by(*(one.made_by for one in materials))
        origin = self._provenance(job, dev, test)
        results = await self._run(job, materials, facts, origin)
        await self._jobs.keep_evaluation(job.id, cast("dict[str, Any]", results))
        logger.info("job %s succeeded: an evaluation", job.id)

    async def _rows(self, job: RunningJob) -> tuple[list[StoredRow], list[StoredRow]]:
        rows = [one async for one in self._jobs.rows(job.id)]
        stored = answered(rows, self._embedder.empty_answers)
        dev_rows = job.options.dev_rows or 0
        dev = [one for one in stored if one.row.line <= dev_rows]
        return dev, [one for one in stored if one.row.line > dev_rows]

    async def _material(self, job: RunningJob, rows: list[StoredRow], num_samples: int) -> Material:
        usable, *_ = usable_rows(rows, num_samples, rng(job.options.seed, Stream.COPIES))
        return await self._embedding.material(job, usable, num_samples)

    def _provenance(self, job: RunningJob, dev: list[StoredRow], test: list[StoredRow]) -> Provenance:
        supplied = {s: _supplied(rows) for s, rows in (("dev", dev), ("test", test))}
        drawn_with = None if all(supplied.values()) else job.fingerprint
        return provenance(
            {split: DataFile(one) for split, one in supplied.items()},
            _answers(drawn_with) if drawn_with else None,
            [self._embedder.identity],
            version=self._version,
            now=self._now(),
        )

    async def _run(
        self,
        job: RunningJob,
        materials: list[Material],
        facts: tuple[FileFacts, FileFacts],
        origin: Provenance,
    ) -> Results:
        def work(report: OnDone) -> Results:
            dev, test = map(make_split, materials)
            bench = Bench(dev, test, seed=job.options.seed)
            inputs = Inputs({self._embedder.identity.name: bench}, None, drawn(test), not_drawn(COMMAND_ONLY))
            return make_results(inputs, facts, origin, lambda done, total, _: report(done, total))

        return await in_thread(work, functools.partial(Progress, self._jobs, job.id, "fitting"))


def _supplied(rows: list[StoredRow]) -> bool:
    return all(one.row.samples is not None for one in rows)


def _answers(drawn_with: Fingerprint) -> AnswersPart:
    parts = drawn_with.parts()
    setup = {
        k: v for k, v in parts.items() if k.startswith(("api", "prompt_shape", "answer_regex", "sampling."))
    }
    return {"model": drawn_with.model, "answered_as": "", "setups": {"rows": setup}}


def _facts(rows: list[StoredRow], job: RunningJob) -> FileFacts:
    return FileFacts(len(rows), full_number([len(one.draws) for one in rows], job.options.num_samples))
