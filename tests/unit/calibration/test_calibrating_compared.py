"""Calibrations with answers compared by the LLM, over the whole pipeline with a store in a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.calibration.rows import DevRow
from service.claims.comparison import PROMPT_VERSION
from service.errors import Conflict, LLMError, LLMUnavailable
from service.jobs.model import JobOptions
from tests.support.comparing import ComparingLLM
from tests.support.pipeline import Bench, Pipeline, bench_in

BY_LLM = JobOptions(compare="llm")


def first_word(first: str, second: str) -> float:
    return 0.95 if first.split(maxsplit=1)[0] == second.split(maxsplit=1)[0] else 0.05


def made_rows(count: int = 12) -> list[DevRow]:
    """Return rows of answers in two wordings, a third of them wrong."""
    samples = ("Paris for one", "Paris it is", "Lyon it is")
    return [DevRow(i + 1, None, ("Paris of course",), prompt=f"q{i}", samples=samples) for i in range(count)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path, ComparingLLM(first_word)) as made:
        yield made


async def test_comparing_model_is_part_of_the_calibration(bench: Bench) -> None:
    calibration_, report = await bench.run(made_rows(), BY_LLM)
    comparer = f"fake-llm, prompt {PROMPT_VERSION}"
    assert (calibration_.fingerprint.kernel, calibration_.fingerprint.comparer) == ("llm", comparer)
    assert report["calibration"]["fingerprint"]["comparer"] == comparer
    by_words, _ = await bench.run(made_rows())
    assert by_words.fingerprint.differs(calibration_.fingerprint) == ["comparer", "kernel"]
    # For the LLM the reference means the same as two of three answers, without any word in common.
    assert calibration_.headline().depolarization < by_words.headline().depolarization


async def test_interrupted_job_repeats_no_comparison(bench: Bench) -> None:
    pipeline = Pipeline(bench.jobs, bench.calibrations, bench.llm, bench.embedder)
    job, _ = await bench.jobs.submit(made_rows(), BY_LLM)
    await pipeline.draw(job.id)
    stopped = bench.llm.same
    bench.llm.same = lambda *pair: stopped(*pair) if len(bench.llm.compared) < 100 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        await pipeline.finish(job.id)
    bench.llm.same = stopped
    before = len(bench.llm.compared)
    await Pipeline(bench.jobs, bench.calibrations, bench.llm, bench.embedder).finish(job.id)
    done = await bench.jobs.get(job.id)
    assert done is not None
    assert done.state == "succeeded"
    num_calls = 12 * (4 * 3 + 4)  # per row the pairs in both orders, and each text with an unrelated one
    assert len(bench.llm.compared) - before <= num_calls - 100 + 16


async def test_job_waits_for_an_unavailable_server(bench: Bench) -> None:
    bench.llm.fail_with = [LLMUnavailable("down")] * 20
    calibration_, _ = await bench.run(made_rows(), BY_LLM)
    assert calibration_.fingerprint.kernel == "llm"


async def test_refused_row_is_compared_by_words(bench: Bench) -> None:
    error = LLMError("too long", llm_status=400)
    bench.llm.fail_questions = [error, error]
    calibration_, _ = await bench.run(made_rows(), BY_LLM)
    assert calibration_.fingerprint.kernel == "llm"
    bench.llm.fail_questions = [error] * 1000
    with pytest.raises(LLMError, match="too long"):
        await bench.run(made_rows(13), BY_LLM)


async def test_an_llm_that_never_says_yes_or_no_calibrates_nothing(bench: Bench) -> None:
    bench.llm.same = lambda *_: None
    with pytest.raises(LLMError, match="neither Yes nor No"):
        await bench.run(made_rows(), BY_LLM)


async def test_one_model_compares_all_rows(bench: Bench) -> None:
    pipeline = Pipeline(bench.jobs, bench.calibrations, bench.llm, bench.embedder)
    job, _ = await bench.jobs.submit(made_rows(), BY_LLM)
    await pipeline.draw(job.id)

    def another_from_now_on(first: str, second: str) -> float:
        if len(bench.llm.compared) > 100:
            bench.llm.model = "another-llm"
        return first_word(first, second)

    bench.llm.same = another_from_now_on
    with pytest.raises(Conflict, match="another-llm"):
        await pipeline.finish(job.id)
