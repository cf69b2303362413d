"""Evaluation as a job: rows of two files, sampled, tested and stored; and deletion."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from service.calibration.store import SqlCalibrations
from service.embedding.port import supplied_draws
from service.errors import InvalidDevData
from service.evaluation.evaluator import Evaluator
from service.evaluation.page import render_evaluation as render
from service.jobs.model import JobOptions
from service.jobs.store import SqlJobs
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.pipeline import Pipeline
from tests.support.reports import FEW
from tests.support.sqlite_store import CopiedDatabase
from tests.support.worlds import rows, stored

DEV, TEST = rows(32, 6, seed=1), rows(34, 6, seed=2)
OPTIONS = JobOptions(dev_rows=32, name="mine")


def both(*, drawn: bool = False, dev=DEV, test=TEST):
    """Return the rows of both files under one count."""
    made = [*dev, *test]
    pairs = zip(made, stored(made), strict=True)
    return [
        replace(row, samples=None) if drawn else replace(row, logprobs=tuple(token_["logprob"]))
        for token_, row in pairs
    ]


class Bench:
    """A store in a file, and the pipeline over it."""

    def __init__(self, database) -> None:
        calibrations = SqlCalibrations(database)
        self.jobs = SqlJobs(database, calibrations)
        self.llm = FakeLLM({row["prompt"]: row["samples"] for row in TEST})
        embedder = FakeEmbedder(16)
        self.pipeline = Pipeline(self.jobs, calibrations, self.llm, embedder, num_samples=6)
        self.evaluator = Evaluator(
            self.jobs, embedder, self.pipeline.embedding, version="1.2.3", resamples=FEW
        )

    async def run(self, found, options=OPTIONS):
        job, _ = await self.jobs.submit(found, options)
        await self.pipeline.draw(job.id)
        await self.pipeline.finish(job.id, self.evaluator.finish if options.dev_rows else None)
        return job.id


@pytest.fixture
async def bench(tmp_path) -> AsyncIterator[Bench]:
    async with opened(tmp_path) as made:
        yield made


@asynccontextmanager
async def opened(folder) -> AsyncIterator[Bench]:
    database = CopiedDatabase(folder)
    try:
        yield Bench(database)
    finally:
        await database.stop()


async def test_job_evaluates_and_stores_the_results(bench):
    job_id = await bench.run(both())
    job = await bench.jobs.get(job_id)
    assert (job.kind, job.state, job.name, job.calibration_id) == ("evaluate", "succeeded", "mine", None)
    results = await bench.jobs.evaluation(job_id)
    assert (results["dev"]["used"], results["test"]["used"]) == (32, 34)
    assert results["fits"].keys() == {"temperature", "depolarized", "evidence"}
    assert results["baselines"]["log_probabilities"] == "per word"
    assert 'id="baselines"' in await asyncio.to_thread(render, results)
    assert await bench.jobs.rows(job_id) == []  # forgotten: prompts and answers


async def test_missing_answers_are_sampled(bench):
    job_id = await bench.run(both(drawn=True))
    assert len(bench.llm.requests) == 66
    results = await bench.jobs.evaluation(job_id)
    assert results["num_samples"] == 6
    provenance = results["provenance"]
    assert provenance["files"]["dev"] == {"name": None, "sha256": None, "answers_from": "model"}
    assert provenance["answers"]["rows"]["model"] == "fake-llm"
    assert provenance["answers"]["rows"]["sampling.temperature"] == 0.5
    assert (provenance["version"], provenance["embedder"]["dimension"]) == ("1.2.3", 16)
    assert "fake-llm" in await asyncio.to_thread(render, results)


async def test_white_space_is_treated_alike_in_job_and_command(bench):
    """The job reads its rows from the store, the command from files: a blank answer is empty in both."""
    texts = ("  ", "", " Paris\n", "Paris", "Nice", "\t")
    texts_ = [replace(row, samples=texts) for row in both()]
    job, _ = await bench.jobs.submit(texts_, OPTIONS)
    kept = [row_.draws for row_ in await bench.jobs.rows(job.id)]
    assert kept == [supplied_draws(item.samples, item.logprobs) for item in texts_]
    assert [draw.text for draw in kept[0]] == ["", "", "Paris", "Paris", "Nice", ""]


async def test_too_few_usable_rows_in_either_file(bench):
    short = [{**row, "samples": row["samples"][:2], "logprob": row["logprob"][:2]} for row in TEST[:25]]
    with pytest.raises(InvalidDevData, match="of 34 rows"):
        request = {"num_samples": 3, "drawn_by": "service"}
        await bench.run(both(test=[*short, *TEST[25:]]), OPTIONS.model_copy(update=request))


async def test_interrupted_evaluation_leaves_no_running_thread(bench, monkeypatch):
    began, ended, stopped = threading.Event(), threading.Event(), []

    def experiments(context, rows, provenance, *, progress):
        began.set()
        try:
            for _ in range(100_000):  # limited, in case nobody stops it
                progress(1, 2)
                ended.wait(0.001)
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise
        finally:
            ended.set()

    monkeypatch.setattr("service.evaluation.evaluator.make_results", experiments)
    running = asyncio.create_task(bench.run(both()))
    assert await asyncio.to_thread(began.wait, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 60)
    assert stopped == ["BrokenOffError"]
