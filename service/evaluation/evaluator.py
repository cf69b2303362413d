"""The use case of POST /evaluate: the command's experiments as a durable job."""

import logging
from dataclasses import dataclass
from typing import Any

from service.calibration.diagnostics import EvaluationContext, Split
from service.calibration.fitting import Stream, rng
from service.calibration.labels import FullRows
from service.calibration.material import answered, check_made_by, full_number, usable_rows
from service.calibration.rows import DevRow
from service.embedding.port import PAPER, Embedder
from service.evaluation.experiments import make_results, provenance
from service.jobs.calibrator import Embedding, in_thread
from service.jobs.store import RunningJob, SqlJobs
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.subsets import OnDone

logger = logging.getLogger(__name__)
# Prefixes of the parts of a fingerprint that determine the answers.
DRAWN_WITH = ("model", "api", "prompt_shape", "answer_regex", "sampling.")


@dataclass(eq=False)
class Evaluator:
    """Runs evaluation jobs with the service's embedder. Rows 1 .. `dev_rows` are dev, the rest test."""

    jobs: SqlJobs
    embedder: Embedder
    embedding: Embedding
    version: str = ""
    resamples: Resamples = DEFAULT

    async def finish(self, job: RunningJob) -> None:
        """Embed the texts, run the experiments, store the results and end the job.

        Raises the errors of `Calibrator.finish`.
        """
        stored = answered(await self.jobs.rows(job.id), self.embedder.empty_answers)
        dev_rows, seed = job.options.dev_rows or 0, job.options.seed
        files = {
            "dev": [row for row in stored if row.line <= dev_rows],
            "test": [row for row in stored if row.line > dev_rows],
        }
        requested = job.options.num_samples
        # Both files use the same m, because the best parameters depend on m.
        m = min(full_number([len(row.draws) for row in rows], requested) for rows in files.values())
        materials = []
        for rows in files.values():
            usable, *_ = usable_rows(rows, m, rng(seed, Stream.COPIES))
            materials.append(await self.embedding.material(job, usable, m, kernel=PAPER))
        # An embedding server may change its model between the two files.
        check_made_by(*(material.made_by for material in materials))
        sizes = len(files["dev"]), len(files["test"])
        origin = self._provenance(job, files)

        def work(report: OnDone) -> dict[str, Any]:
            dev, test = (Split(FullRows(material)) for material in materials)
            context = EvaluationContext(dev, test, seed=seed, resamples=self.resamples)
            return make_results(context, sizes, origin, progress=report)

        results = await in_thread(work, self.jobs, job.id, "fitting")
        await self.jobs.keep_evaluation(job.id, results)
        logger.info("job %s succeeded: an evaluation", job.id)

    def _provenance(self, job: RunningJob, files: dict[str, list[DevRow]]) -> dict[str, Any]:
        supplied = {name: all(row.samples is not None for row in rows) for name, rows in files.items()}
        parts: dict[str, dict[str, Any]] = {
            name: {"name": None, "sha256": None, "answers_from": "file" if in_file else "model"}
            for name, in_file in supplied.items()
        }
        answers = None
        if job.fingerprint and not all(supplied.values()):
            fingerprint = job.fingerprint.parts()
            answers = {"rows": {k: v for k, v in fingerprint.items() if k.startswith(DRAWN_WITH)}}
        return provenance(self.version, parts, answers, self.embedder)
