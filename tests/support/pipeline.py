"""A calibration's pipeline without an engine: one row after the other, errors as they come."""

from service.calibration.store import SqlCalibrations
from service.embedding.port import Embedder
from service.jobs.calibrator import Calibrator, Embedding
from service.jobs.drawing import Drawer
from service.jobs.store import SqlJobs
from service.jobs.waiting import Patience
from service.jobs.workflows import Finish
from service.llm.port import LanguageModel, Sampling
from service.scoring.score import Serving
from tests.support.reports import FEW

QUICK = Patience(first_wait_s=0.001, max_wait_s=0.002, give_up_s=30, ask_again_s=(0.001, 0.001))


class Pipeline:
    """What draws the answers of jobs and finishes calibrations."""

    def __init__(
        self,
        jobs: SqlJobs,
        calibrations: SqlCalibrations,
        llm: LanguageModel,
        embedder: Embedder,
        *,
        num_samples: int = 5,
    ) -> None:
        self.jobs = jobs
        serving = Serving(num_samples, Sampling(), Sampling())
        self.drawer = Drawer(llm, embedder, jobs, serving, patience=QUICK)
        self.embedding = Embedding(embedder, jobs, patience=QUICK)
        self.calibrator = Calibrator(jobs, calibrations, self.drawer, self.embedding, resamples=FEW)

    async def draw(self, job_id: str) -> None:
        """Draw what is missing."""
        await self.jobs.begin(job_id)
        for line in await self.jobs.missing_lines(job_id):
            assert await self.drawer.draw(job_id, line) is None

    async def finish(self, job_id: str, finish: Finish | None = None) -> None:
        """Do the rest."""
        await (finish or self.calibrator.finish)(await self.jobs.running(job_id))
