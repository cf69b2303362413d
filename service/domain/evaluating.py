"""The use case behind POST /evaluate: the command's experiments, as a durable job."""

import functools
from typing import Any, cast

from service.domain.calibrating import Pipeline
from service.domain.evaluation.bench import Bench
from service.domain.evaluation.likelihoods import drawn
from service.domain.evaluation.model import Results
from service.domain.evaluation.results import FileFacts, make_results
from service.domain.evaluation.running import Inputs
from service.domain.evaluation.sampling_temperature import not_drawn
from service.domain.evaluation.split import make_split
from service.domain.job_store import ClaimedJob, JobStore, StoredRow
from service.domain.jobs import JobStage
from service.domain.material import Embedding, Material, check_made_by, full_number, usable_rows
from service.domain.ports import Embedder
from service.domain.progress import Progress
from service.domain.threads import Report, in_thread

COMMAND_ONLY = (
    "A job draws at one sampling temperature; the command `python -m service evaluate` tries several."
)


class Evaluator:
    """Runs evaluation jobs; one embedder, the service's own. Rows 1 .. `dev_rows` are dev, the rest test."""

    def __init__(self, jobs: JobStore, embedder: Embedder, embedding: Embedding) -> None:
        self._jobs = jobs
        self._embedder = embedder
        self._embedding = embedding

    async def finish(self, job: ClaimedJob) -> None:
        """Embed, run the experiments, store the results, end the job. Raises as `Calibrator.finish` does."""
        dev, test = await self._rows(job)
        facts = _facts(dev, job), _facts(test, job)
        m = min(one.answers for one in facts)
        materials = [await self._material(job, rows, m) for rows in (dev, test)]
        check_made_by(*(one.made_by for one in materials))
        results = await self._run(job, materials, facts)
        await self._jobs.keep_evaluation(job.lease, cast("dict[str, Any]", results))

    async def _rows(self, job: ClaimedJob) -> tuple[list[StoredRow], list[StoredRow]]:
        stored = [one async for one in self._jobs.stored_rows(job.lease.job_id)]
        dev_rows = job.options.dev_rows or 0
        dev = [one for one in stored if one.row.line <= dev_rows]
        return dev, [one for one in stored if one.row.line > dev_rows]

    async def _material(self, job: ClaimedJob, rows: list[StoredRow], num_samples: int) -> Material:
        usable, _ = usable_rows(rows, num_samples)
        return await self._embedding.material(
            usable, num_samples, lambda total: self._stage(job, "embedding", total)
        )

    def _stage(self, job: ClaimedJob, stage: JobStage, total: int) -> Progress:
        return Progress(self._jobs, job.lease, stage, total)

    async def _run(
        self, job: ClaimedJob, materials: list[Material], facts: tuple[FileFacts, FileFacts]
    ) -> Results:
        def work(report: Report) -> Results:
            dev, test = map(make_split, materials)
            bench = Bench(dev, test, seed=job.options.seed)
            inputs = Inputs({self._embedder.identity.name: bench}, None, drawn(test), not_drawn(COMMAND_ONLY))
            return make_results(inputs, facts, lambda done, total, _: report(done, total))

        return await in_thread(work, functools.partial(self._stage, job, "fitting"))


def _facts(rows: list[StoredRow], job: ClaimedJob) -> FileFacts:
    return FileFacts(len(rows), full_number([len(one.draws) for one in rows], job.options.num_samples))


class ByKind:
    """A pipeline that draws for every kind of job, and finishes each in its own way."""

    def __init__(self, calibrator: Pipeline, evaluator: Evaluator) -> None:
        self._calibrator = calibrator
        self._evaluator = evaluator

    async def draw(self, job: ClaimedJob) -> None:
        """Draw the missing answers."""
        await self._calibrator.draw(job)

    async def finish(self, job: ClaimedJob) -> None:
        """Do the rest and end the job."""
        one = self._calibrator if job.options.kind == "calibrate" else self._evaluator
        await one.finish(job)
