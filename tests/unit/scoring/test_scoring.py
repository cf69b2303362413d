"""Parts of a score: chosen calibration, modes, warnings, deadline and timings."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.calibration.calibration import Calibration, caller_fingerprint
from service.embedding.port import Embedded
from service.llm.port import Generation, GenerationRequest, Message, Sampling, WirePrompt
from service.scoring.choice import CalibrationChoice
from service.scoring.judging import find_modes, num_indistinct
from service.scoring.score import ScoreCommand
from service.scoring.scorer import LiveLoad, Scorer
from service.spectral.conformal import ConformalReference
from service.spectral.spectrum import DepolarizedMap, Identity, Spectrum, TemperatureMap, spectrum
from tests.support.calibrations import Active, calibration, fingerprint
from tests.support.fakes import FakeEmbedder, FakeLLM


async def test_nearest_calibration_shows_the_differences() -> None:
    command_, llm, embedder = (
        ScoreCommand(GenerationRequest(5, Sampling(), prompt="p")),
        FakeLLM(),
        FakeEmbedder(),
    )
    wanted = Scorer(llm, embedder, Active()).choice.fingerprint(command_)
    far = replace(calibration(), fingerprint=replace(wanted, model="other", api="other", embedder="other"))
    near = replace(calibration(), fingerprint=replace(wanted, model="other"))
    for order in ([far, near], [near, far]):
        score = await Scorer(llm, embedder, Active(*order)).score(command_)
        assert score.calibration is None
        [warning] = score.warnings
        assert (warning.code, warning.differs) == ("calibration_mismatch", ["model"])


def test_a_temperature_calibration_is_served_with_its_own_eps() -> None:
    calibration_ = Calibration(
        "c",
        "temperature",
        fingerprint(),
        3,
        {3: DepolarizedMap(2.0, 0.0)},
        calibration().created_at,
        eps=1e-4,
    )
    assert calibration_.map_for(3) == TemperatureMap(2.0, 1e-4)


def modes_of(vectors: list[list[float]], counts: list[int]) -> tuple[Spectrum, list[str]]:
    spectrum_ = spectrum(np.array(vectors), np.array(counts))
    texts = [chr(ord("a") + i) for i in range(len(counts))]
    served = Identity().serve(spectrum_.eigenvalues, spectrum_.dimension)
    return spectrum_, [mode.answer for mode in find_modes(spectrum_, served, texts, np.array(counts))]


def test_most_frequent_answer_represents_a_mode() -> None:
    _, answers = modes_of([[1, 0], [1, 0], [0, 1]], [1, 3, 2])
    assert answers == ["b", "c"]


def test_at_most_five_modes_are_returned() -> None:
    result, answers = modes_of(np.eye(7).tolist(), [7, 6, 5, 4, 3, 2, 1])
    assert result.rank == 7
    assert answers == ["a", "b", "c", "d", "e"]


def test_named_answer_calibration_does_not_apply_to_claims() -> None:
    command, made_by = ScoreCommand(samples=("a", "b")), FakeEmbedder().identity
    plain = caller_fingerprint("", made_by)
    named = replace(calibration(), fingerprint=plain)
    of_claims = replace(calibration(), fingerprint=replace(plain, unit="claim"))
    choice = CalibrationChoice(FakeLLM(), FakeEmbedder(), Active(named, of_claims), None)
    assert choice.fitting(command, named, unit="claim") == (of_claims, [])
    result, [mismatch] = choice.fitting(command, of_claims)
    assert (result, mismatch.differs) == (None, ["unit"])


def test_near_answers_are_distinct() -> None:
    near = np.array([[1.0, 0.0], [np.cos(0.05), np.sin(0.05)]], dtype=np.float32)
    assert num_indistinct(["yes", "no"], near) == 0


@pytest.mark.parametrize(("deadline_s", "kept_s"), [(2.0, 0.2), (60.0, 0.5)])
async def test_deadline_from_the_arrival_reserves_time_to_embed(
    deadline_s: float, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, now = FakeLLM(), time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    request = GenerationRequest(2, Sampling(), prompt="p", deadline_s=deadline_s)
    await Scorer(llm, FakeEmbedder(), Active()).score(ScoreCommand(request, arrived=now - 1.0))
    assert llm.requests[0].deadline_s == pytest.approx(deadline_s - 1.0 - kept_s)


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({"prompt": " Which? "}, "Which?"),
        ({"prompt": "x" * 5000}, "x" * 2000),
        (
            {"messages": (Message("user", "First?"), Message("user", "Last?"), Message("assistant", "So"))},
            "Last?",
        ),
        ({"messages": (Message("system", "Be brief."),)}, None),
        ({"wire": WirePrompt("completions", {"prompt": "Which?"})}, "Which?"),
        ({"wire": WirePrompt("completions", {"prompt": [1, 2]})}, None),
        (
            {
                "wire": WirePrompt(
                    "chat",
                    {
                        "messages": [
                            {
                                "role": "user",
                                "content": [{"type": "text", "text": "Which?"}, {"type": "image_url"}],
                            },
                            {"role": "assistant", "content": None},
                        ]
                    },
                )
            },
            "Which?",
        ),
    ],
)
def test_question_is_the_prompt_or_the_last_user_turn(fields: dict[str, Any], question: str | None) -> None:
    assert GenerationRequest(2, Sampling(), **fields).question == question


class Queued(FakeLLM):
    """An LLM that reports a wait of a minute for each request."""

    async def generate(self, request: GenerationRequest) -> Generation:
        return replace(await super().generate(request), queued_s=60.0)


async def test_waiting_for_the_llm_counts_as_queueing() -> None:
    request = GenerationRequest(2, Sampling(), prompt="p")
    score = await Scorer(Queued(), FakeEmbedder(), Active()).score(ScoreCommand(request))
    assert score.timings_ms.generate == 0.0  # never less, for any report of an LLM
    assert score.timings_ms.queue > 0.0
    assert sum(ms or 0.0 for _, ms in score.timings_ms) == pytest.approx(2 * score.timings_ms.total, abs=0.01)


async def test_supplied_logprobs_stay_with_their_answers() -> None:
    command = ScoreCommand(samples=("a ", "b"), logprobs=(-1.0, -2.0))
    score = await Scorer(FakeLLM(), FakeEmbedder(), Active()).score(command)
    assert score.samples == ["a", "b"]
    assert score.evidence is not None
    assert score.evidence.missing_mass == pytest.approx(1 - np.exp(-1) - np.exp(-2))
    assert score.evidence.mean_logprob == -1.5


def test_live_score_counts_until_it_ends_or_fails() -> None:
    live = LiveLoad()
    with live.one(), live.one():
        assert live.under_way == 2
    with pytest.raises(KeyError), live.one():
        raise KeyError
    assert live.under_way == 0


class Slow(FakeEmbedder):
    """An embedder that takes longer than the LLM."""

    made: tuple[str, ...] = ()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        await asyncio.sleep(0.05)
        embedded_ = await super().embed(texts)
        self.made += tuple(texts)
        return embedded_


async def test_embedding_of_the_question_is_not_cut_by_the_answers() -> None:
    embedder = Slow()
    command_ = ScoreCommand(GenerationRequest(2, Sampling(), prompt="Who?"))
    reference = ConformalReference(np.eye(1, 64, dtype=np.float32), np.ones((1, 2), dtype=np.int32))
    score = await Scorer(FakeLLM(), embedder, Active(replace(calibration(), reference=reference))).score(
        command_
    )
    assert embedder.made[0] == "Who?"
    assert score.timings_ms.generate is not None
    assert score.timings_ms.embed > score.timings_ms.generate
