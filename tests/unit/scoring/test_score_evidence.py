"""Scores by evidence: served maps, warnings without evidence, and single answers."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.calibration.calibration import Calibration
from service.errors import TooFewSamples
from service.llm.prompt import Template
from service.scoring.score import Score, ScoreCommand
from service.scoring.scorer import Scorer
from tests.support.calibrations import Active, calibration
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder

DIMENSION = 8


def asked(num_samples: int, prompt: str = "question 0", **parts: Any) -> ScoreCommand:
    return ScoreCommand(num_samples, prompt=Template().prompt(prompt), **parts)


def fitting(llm: TellingLLM, made: Callable[..., Calibration] = by_evidence) -> Calibration:
    """Return a calibration for this LLM's set-up."""
    wanted = Scorer(llm, FakeEmbedder(DIMENSION), Active()).choice.fingerprint(asked(2))
    return replace(made(), fingerprint=wanted)


async def scored(llm: TellingLLM, command: ScoreCommand, *active: Calibration) -> Score:
    return await Scorer(llm, FakeEmbedder(DIMENSION), Active(*active)).score(command)


@pytest.mark.parametrize("logprob", [0.0, -math.inf, 1e-7, -1e4])
async def test_extreme_log_probabilities_are_served(logprob: float) -> None:
    llm = TellingLLM(told={"question 0": logprob})
    score = await scored(llm, asked(3), fitting(llm))
    assert score.calibration is not None
    assert score.calibration.method == "evidence"
    assert score.evidence is not None
    assert 1e-4 <= score.evidence.missing_mass <= 1 - 1e-4
    assert math.isfinite(score.evidence.mean_logprob)
    assert math.isfinite(score.lambda_max + score.entropy)


async def test_single_answer_is_refused_before_the_llm_call() -> None:
    llm = TellingLLM()
    fits = fitting(llm)
    other = replace(fits, fingerprint=replace(fits.fingerprint, model="other"))
    for active in ((), (fitting(llm, calibration),), (other,)):
        with pytest.raises(TooFewSamples):
            await scored(llm, asked(1), *active)
    with pytest.raises(TooFewSamples):
        await scored(llm, asked(1, calibration="none"), fits)
    with pytest.raises(TooFewSamples):
        await scored(llm, ScoreCommand(1, samples=("a",)), fits)
    assert llm.requests == []


async def test_one_answer_without_a_log_probability_is_refused() -> None:
    llm = TellingLLM(tells=False)
    with pytest.raises(TooFewSamples):
        await scored(llm, asked(1), fitting(llm))


async def test_named_evidence_calibration_allows_one_answer() -> None:
    llm = TellingLLM()
    named, plain = fitting(llm), fitting(llm, calibration)
    score = await scored(llm, asked(1, calibration=named.id), plain, named)
    assert score.calibration is not None
    assert score.calibration.id == named.id
    with pytest.raises(TooFewSamples):
        await scored(llm, asked(1, calibration=plain.id), named, plain)
