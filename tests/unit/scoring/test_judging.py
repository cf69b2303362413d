"""Single texts judged by samples through the whole scorer: manual cases, decisions, properties."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.calibration.calibration import (
    Calibration,
    JudgedTexts,
    Selector,
    caller_fingerprint,
)
from service.llm.prompt import Template
from service.scoring.score import Score, ScoreCommand, Target
from service.scoring.scorer import Scorer
from service.spectral.evidence import EvidenceMap
from service.spectral.selective import SelectiveCounts
from service.spectral.spectrum import DepolarizedMap
from tests.support.calibrations import Active, calibration
from tests.support.decisions import selector
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder, FakeLLM

DIMENSION = 8
AXES = np.eye(DIMENSION)
VECTORS = {**dict(zip("abc", AXES, strict=False)), "mostly a": 0.8 * AXES[0] + 0.6 * AXES[5], "new": AXES[6]}
TWO_TO_ONE = ("a", "a", "b")
# T = 1 and g = 0.5 map the eigenvalues 2/3, 1/3 and 0 to:
FIRST, SECOND, NULL = 1 / 3 + 1 / 16, 1 / 6 + 1 / 16, 1 / 16
EASY = Target(0.2, 0.9)  # reached by the threshold 0.5, which lets 0.6 of the questions through


def embedder() -> FakeEmbedder:
    return FakeEmbedder(DIMENSION, vectors=VECTORS)


def supplied(selectors: dict[int, Selector] | None = None) -> Calibration:
    """Return a calibration of supplied answers, T = 1 and g = 0.5, which decides with `selectors`."""
    made = replace(calibration(), parameters={m: DepolarizedMap(1.0, 0.5) for m in range(2, 6)})
    wanted = caller_fingerprint("mine", embedder().identity)
    return replace(made, fingerprint=wanted, selectors=selectors or {})


async def scored(samples: tuple[str, ...], active: Calibration | None = None, **asked: Any) -> Score:
    source = Active() if active is None else Active(active)
    command = ScoreCommand(
        len(samples), samples=samples, source_label=asked.pop("source_label", "mine"), **asked
    )
    return await Scorer(FakeLLM(), embedder(), source).score(command)


def codes(score: Score) -> list[str]:
    return [warning.code for warning in score.warnings]


def what_it_says_of_the_answers(score: Score) -> dict[str, Any]:
    document = score.document(["modes", "samples"])
    return {k: v for k, v in document.items() if k not in ("id", "candidate", "timings_ms")}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["a", "b", "mostly a", "x", "y"]), min_size=2, max_size=5),
    st.sampled_from(["a", "b", "new", "x", "anything"]),
)
def test_a_candidate_never_counts_as_an_answer(samples: list[str], candidate: str) -> None:
    """The rest of the score is bit-identical, and 0 <= p(y) <= lambda_max."""
    selectors = {m: selector(DepolarizedMap(1.0, 0.3)) for m in range(2, 6)}
    scorer = Scorer(FakeLLM(), embedder(), Active(supplied(selectors)))
    plain = ScoreCommand(len(samples), samples=tuple(samples), source_label="mine")
    without = asyncio.run(scorer.score(plain))
    with_one = asyncio.run(scorer.score(replace(plain, candidate=candidate)))
    assert what_it_says_of_the_answers(with_one) == what_it_says_of_the_answers(without)
    candidate_ = with_one.candidate
    assert candidate_ is not None
    assert 0 <= candidate_.probability <= with_one.lambda_max
    assert (candidate_.probability_correct is None) == (candidate_.mode is None)
    assert candidate_.mode is None or 0 <= (candidate_.probability_correct or 0.0) <= 1


@pytest.mark.parametrize("told", [0.0, 1e-7, -1e-12, -1e4, -math.inf, math.nan, math.inf])
async def test_p_correct_is_finite_for_any_logprobs(told: float) -> None:
    llm = TellingLLM(told={"question 0": told})
    prompt = Template().prompt("question 0")
    command = ScoreCommand(3, prompt=prompt, candidate="answer 0", target=EASY)
    wanted = Scorer(llm, embedder(), Active()).choice.fingerprint(command)
    fits = by_evidence(fingerprint=wanted, selectors={3: selector(EvidenceMap(1.0, 0.0, 1.0))})
    score = await Scorer(llm, embedder(), Active(fits)).score(command)
    missing = math.isnan(told) or told == math.inf  # not log-probabilities
    assert codes(score) == ["evidence_missing"] * missing
    for result in (score.probability_correct, score.decisive):
        assert result is None if missing else 0 <= result <= 1


UNANIMOUS, SPLIT = ("a", "a", "a"), TWO_TO_ONE  # P(correct) of 0.5625 and 0.396


@pytest.mark.parametrize("off", [0.0, 1e-14, -1e-14])
async def test_probability_at_the_threshold_is_let_through_despite_rounding(off: float) -> None:
    counts = SelectiveCounts((0.5625 + off,), (100,), (5,))
    active = supplied(selectors={3: replace(selector(), counts=counts)})
    made = (await scored(UNANIMOUS, active, target=EASY)).decision
    assert made is not None
    assert made.action == "answer"


async def test_decision_says_that_no_error_can_be_promised() -> None:
    hopeless = replace(selector(), counts=SelectiveCounts((0.5, 0.1), (30, 60), (30, 60)))
    score = await scored(UNANIMOUS, supplied(selectors={3: hopeless}), target=EASY)
    assert score.decision is not None
    assert "no error can" in score.decision.reason


@pytest.mark.parametrize(
    ("active", "asked", "said"),
    [
        (None, {}, None),
        (supplied(selectors={3: selector()}), {"source_label": "other"}, None),
        (supplied(selectors={3: selector()}), {"calibration": "none"}, None),
        (supplied(), {}, "has no correctness model"),
        (
            supplied(selectors={2: selector()}),
            {},
            "has no correctness model for 3 answers",
        ),
        (
            supplied(selectors={3: selector(EvidenceMap(1.0, 0.0, 1.0))}),
            {},
            "log-probabilities",
        ),
    ],
)
async def test_calibration_without_a_model_abstains_with_a_reason(
    active: Calibration | None, asked: dict[str, Any], said: str | None
) -> None:
    unasked = await scored(UNANIMOUS, active, candidate="b", **asked)
    score = await scored(UNANIMOUS, active, candidate="b", target=EASY, **asked)
    assert unasked.decision is None
    for score_ in (unasked, score):
        assert score_.probability_correct is None
        assert score_.candidate is not None
        assert score_.candidate.probability_correct is None
    made = score.decision
    if said is None:
        assert made is None
    else:
        assert made is not None
        assert (made.action, made.threshold, made.coverage) == ("abstain", None, 0.0)
        assert said in made.reason


@pytest.mark.parametrize(
    ("candidate", "warned"), [("\N{WATERMELON}", True), ("Paris!", False), ("b", False), (None, False)]
)
async def test_warning_if_the_embedder_confuses_the_candidate_with_an_answer(
    candidate: str | None, warned: bool
) -> None:
    """The embedder maps all fruit to one vector. "Paris!" means the same as "paris"."""
    unread = dict.fromkeys(["\N{GRAPES}", "\N{WATERMELON}"], AXES[0])
    embedder_ = FakeEmbedder(
        DIMENSION, vectors={**unread, **dict.fromkeys(["paris", "Paris!"], AXES[1]), "b": AXES[2]}
    )
    command = ScoreCommand(2, samples=("\N{GRAPES}", "paris"), candidate=candidate, calibration="none")
    score = await Scorer(FakeLLM(), embedder_, Active()).score(command)
    assert codes(score) == ["indistinct_answers"] * warned


@pytest.mark.parametrize(
    ("judged", "candidate", "is_said"),
    [
        ("given", None, True),
        ("given", "b", False),
        ("dominant", None, False),
        ("dominant", "b", True),
        ("dominant", "a", False),
        ("mixed", None, False),
        ("mixed", "b", False),
    ],
)
async def test_decision_says_that_the_promise_is_about_other_texts(
    judged: JudgedTexts, candidate: str | None, is_said: bool
) -> None:
    active = supplied(selectors={3: selector(judged=judged)})
    score = await scored(TWO_TO_ONE, active, candidate=candidate, target=EASY)
    assert score.decision is not None
    assert ("the promise may not hold" in score.decision.reason) == is_said
