"""Scores by evidence: served maps, warnings without evidence, and single answers."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.calibration.calibration import Calibration
from service.errors import DeadlineExceeded, LLMBadResponse, TooFewSamples
from service.llm.port import Generation, GenerationRequest, LLMIdentity, Sampling
from service.scoring.score import Score, ScoreCommand
from service.scoring.scorer import Scorer
from tests.support.calibrations import Active, calibration
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder

DIMENSION = 8


def asked(num_samples: int, prompt: str = "question 0", **parts: Any) -> ScoreCommand:
    return ScoreCommand(GenerationRequest(num_samples, Sampling(), prompt=prompt), **parts)


def fitting(llm: TellingLLM, made: Callable[..., Calibration] = by_evidence) -> Calibration:
    """Return a calibration for this LLM's set-up."""
    wanted = Scorer(llm, FakeEmbedder(DIMENSION), Active()).choice.fingerprint(asked(2))
    return replace(made(), fingerprint=wanted)


async def scored(llm: TellingLLM, command: ScoreCommand, *active: Calibration) -> Score:
    return await Scorer(llm, FakeEmbedder(DIMENSION), Active(*active)).score(command)


@pytest.mark.parametrize("mass", [0.2, 0.9])
async def test_a_score_is_served_by_its_own_missing_mass(mass: float) -> None:
    """Equal answers have the same spectrum and differ only in evidence. g = u, so 1 - u + u/d is served."""
    llm = TellingLLM(told={"question 0": math.log(mass)})
    score = await scored(llm, asked(3), fitting(llm))
    assert score.calibration is not None
    assert (score.calibration.method, score.warnings) == ("evidence", [])
    assert score.evidence is not None
    assert score.evidence.missing_mass == pytest.approx(1 - mass)
    assert score.evidence.mean_logprob == pytest.approx(math.log(mass))
    assert score.lambda_max == pytest.approx(mass + (1 - mass) / DIMENSION)
    assert score.uncalibrated.lambda_max == pytest.approx(1.0)


async def test_plain_parameters_serve_without_logprobs_with_a_warning() -> None:
    llm = TellingLLM(tells=False)
    fitted = fitting(llm)
    score = await scored(llm, asked(3), fitted)
    assert score.calibration is not None
    assert score.calibration.method == "depolarized"
    assert score.calibration.temperature == fitted.map_for(3).temperature
    assert [warning.code for warning in score.warnings] == ["evidence_missing"]
    assert score.evidence is None


async def test_plain_calibration_reports_but_does_not_use_evidence() -> None:
    llm = TellingLLM()
    score = await scored(llm, asked(3), fitting(llm, calibration))
    assert score.calibration is not None
    assert (score.calibration.method, score.warnings) == ("depolarized", [])
    assert score.evidence is not None


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


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 0.5])
async def test_invalid_logprob_counts_as_missing(logprob: float) -> None:
    llm = TellingLLM(told={"question 0": logprob})
    score = await scored(llm, asked(3), fitting(llm))
    assert [warning.code for warning in score.warnings] == ["evidence_missing"]
    assert score.evidence is None
    with pytest.raises(TooFewSamples):
        await scored(llm, asked(1), fitting(llm))


async def test_one_answer_is_enough_with_evidence() -> None:
    llm = TellingLLM(told={"question 0": math.log(0.5)})
    score = await scored(llm, asked(1), fitting(llm))
    assert score.calibration is not None
    assert score.calibration.method == "evidence"
    assert score.lambda_max == pytest.approx(0.5 + 0.5 / DIMENSION)
    assert len(score.samples) == len(score.modes) == 1


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
        await scored(llm, ScoreCommand(samples=("a",)), fits)
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


class Unheard(TellingLLM):
    """An LLM with a name known only from its answers."""

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        result = super().identity(request)
        return result if self.requests else replace(result, model="", answered=False)


async def test_first_score_after_the_start_may_have_one_answer() -> None:
    assert (await scored(Unheard(), asked(1), fitting(TellingLLM()))).calibration is not None
    renamed = fitting(TellingLLM())
    renamed = replace(renamed, fingerprint=replace(renamed.fingerprint, model="other"))
    with pytest.raises(TooFewSamples):
        await scored(Unheard(), asked(1), renamed)


class Late(TellingLLM):
    """An LLM that returns one answer before the deadline, or in total."""

    def __init__(self, reason: str, *, tells: bool = True) -> None:
        super().__init__(tells=tells)
        self.deliver, self.reason = 1, reason

    async def generate(self, request: GenerationRequest) -> Generation:
        return replace(await super().generate(request), missing_reason=self.reason)


@pytest.mark.parametrize(("reason", "error"), [("deadline", DeadlineExceeded), ("error", LLMBadResponse)])
async def test_one_received_answer_of_many_is_served_by_evidence(reason: str, error: type[Exception]) -> None:
    llm = Late(reason)
    score = await scored(llm, asked(4), fitting(llm))
    assert [warning.code for warning in score.warnings] == ["partial_samples"]
    assert len(score.samples) == 1
    with pytest.raises(error):
        await scored(llm, asked(4), fitting(llm, calibration))
    silent = Late(reason, tells=False)
    with pytest.raises(error):
        await scored(silent, asked(4), fitting(silent))


async def test_more_answers_than_were_fitted_are_served_raw() -> None:
    llm = TellingLLM()
    score = await scored(llm, asked(6), fitting(llm))
    assert score.calibration is None
    assert [warning.differs for warning in score.warnings] == [["num_samples"]]
    assert score.evidence is not None


def test_the_fingerprint_shows_evidence_but_its_key_does_not() -> None:
    plain = calibration().fingerprint
    shown = replace(plain, evidence="token_sums")
    assert shown.key() == plain.key()
    assert shown.differs(plain) == []
    assert shown.described() == plain.parts() | {"evidence": "token_sums"}
    assert plain.described() == plain.parts()
