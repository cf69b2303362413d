"""A calibration's pipeline without a job engine: rows in sequence, and errors are raised."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.calibration.calibration import Calibration
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Comparer
from service.embedding.port import Embedder
from service.jobs.calibrator import Calibrator, Checking, Comparing, Drawer, Embedding, RetryPolicy
from service.jobs.model import JobOptions
from service.jobs.runner import JobSteps
from service.jobs.store import SqlJobs
from service.llm.ask import Asker
from service.llm.client import LLM
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW
from tests.support.sqlite_store import CopiedDatabase

QUICK = RetryPolicy(first_wait_s=0.001, max_wait_s=0.002, give_up_s=30)


class Pipeline:
    """Samples the answers of jobs and finishes calibrations."""

    def __init__(
        self,
        jobs: SqlJobs,
        calibrations: SqlCalibrations,
        llm: FakeLLM | LLM,
        embedder: Embedder,
        *,
        num_samples: int = 5,
    ) -> None:
        self.jobs = jobs
        serving = Serving(num_samples, Sampling(), Sampling())
        self.drawer = Drawer(llm, embedder, jobs, serving, patience=QUICK)
        self.embedding = Embedding(embedder, jobs, patience=QUICK)
        asker = Asker(llm)
        comparing = Comparing(Comparer(asker), jobs, patience=QUICK)
        checking = Checking(asker, jobs, patience=QUICK)
        self.calibrator = Calibrator(
            jobs, calibrations, self.drawer, self.embedding, comparing, checking, resamples=FEW
        )

    async def draw(self, job_id: str) -> None:
        """Sample the missing answers."""
        await self.jobs.begin(job_id)
        for line in await self.jobs.missing_lines(job_id):
            await self.drawer.draw(job_id, line)

    async def finish(self, job_id: str) -> None:
        """Run the finishing steps."""
        await JobSteps(self.jobs, self.drawer, self.calibrator.finish, slots=1).finish(job_id)


@asynccontextmanager
async def bench_in(folder: Path, llm: Any, num_samples: int = 5) -> AsyncIterator["Bench"]:
    """Yield a bench with a database in this folder."""
    database = CopiedDatabase(folder)
    calibrations = SqlCalibrations(database)
    jobs = SqlJobs(database, calibrations)
    yield Bench(jobs, calibrations, FakeEmbedder(24), llm, num_samples)
    await database.stop()


@dataclass
class Bench:
    """All parts of a calibration, and one call that runs it."""

    jobs: SqlJobs
    calibrations: SqlCalibrations
    embedder: Any
    llm: Any
    num_samples: int = 5

    async def run(
        self, rows: Sequence[DevRow], options: JobOptions | None = None
    ) -> tuple[Calibration, dict[str, Any]]:
        job, _ = await self.jobs.submit(rows, options or JobOptions())
        pipeline = Pipeline(
            self.jobs, self.calibrations, self.llm, self.embedder, num_samples=self.num_samples
        )
        await pipeline.draw(job.id)
        await pipeline.finish(job.id)
        done = await self.jobs.get(job.id)
        assert done is not None and done.calibration_id is not None
        assert (done.state, done.error) == ("succeeded", None)
        calibration = await self.calibrations.get(done.calibration_id)
        report = await self.calibrations.report(done.calibration_id)
        assert calibration is not None and report is not None
        json.dumps(report, allow_nan=False)
        return calibration, report
