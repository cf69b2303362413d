"""Parts of a score: chosen calibration, modes, warnings, deadline and timings."""

import time
from dataclasses import replace

import numpy as np
import pytest

from service.claims.kernel import kernel_of, read_texts
from service.embedding.port import PAPER
from service.errors import DeadlineExceeded
from service.llm.prompt import GenerationRequest, Template
from service.llm.samples import Draw, Generation
from service.scoring.judge import find_modes
from service.scoring.observation import observe
from service.scoring.score import Mode, ScoreCommand
from service.scoring.scorer import Scorer
from service.spectral.spectrum import Spectrum, serve
from tests.support.calibrations import Active
from tests.support.fakes import FakeEmbedder, FakeLLM


def modes_of(vectors: list[list[float]], index: list[int]) -> tuple[Spectrum, list[Mode]]:
    texts = [chr(ord("a") + i) for i in range(len(vectors))]
    kernel, draws = kernel_of(read_texts(texts, kernel=PAPER), vectors), [Draw(texts[i]) for i in index]
    seen = observe(draws, np.array(index), texts, None, kernel, len(vectors[0]), None)
    return seen.spectrum, find_modes(seen, serve(seen.spectrum))


def test_most_frequent_answer_represents_a_mode() -> None:
    _, modes = modes_of([[1, 0], [1, 0], [0, 1]], [0, 2, 1, 1, 2, 1])
    assert [mode.answer for mode in modes] == ["b", "c"]
    assert [mode.share for mode in modes] == [4 / 6, 2 / 6]


def test_at_most_five_modes_are_returned() -> None:
    result, modes = modes_of(np.eye(7).tolist(), np.repeat(range(7), range(7, 0, -1)).tolist())
    assert result.rank == 7
    assert [mode.answer for mode in modes] == ["a", "b", "c", "d", "e"]


async def test_deadline_counts_from_the_arrival() -> None:
    command = ScoreCommand(2, prompt=Template().prompt("p"), deadline_s=60.0)
    scorer = Scorer(FakeLLM(), FakeEmbedder(), Active())
    assert await scorer.score(replace(command, arrived=time.perf_counter()))
    with pytest.raises(DeadlineExceeded):
        await scorer.score(replace(command, arrived=time.perf_counter() - 61.0))


class Queued(FakeLLM):
    """An LLM that reports a wait of a minute for each request."""

    async def generate(self, request: GenerationRequest) -> Generation:
        return replace(await super().generate(request), queued_s=60.0)


async def test_waiting_for_the_llm_counts_as_queueing() -> None:
    command = ScoreCommand(2, prompt=Template().prompt("p"))
    score = await Scorer(Queued(), FakeEmbedder(), Active()).score(command)
    assert score.timings_ms.generate == 0.0  # never less, for any report of an LLM
    assert score.timings_ms.queue > 0.0
    assert sum(ms or 0.0 for _, ms in score.timings_ms) == pytest.approx(2 * score.timings_ms.total, abs=0.01)
