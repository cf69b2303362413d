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
from service.calibration.default import packaged
from service.embedding.port import PAPER
from service.llm.port import GenerationRequest, Sampling
from service.scoring.score import Score, ScoreCommand, Target
from service.scoring.scorer import Scorer
from service.spectral.correctness_model import agreement, sigmoid
from service.spectral.evidence import EvidenceMap
from service.spectral.selective import SelectiveCounts, selective_counts
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


def embedder(**parts: Any) -> FakeEmbedder:
    return FakeEmbedder(DIMENSION, vectors=VECTORS, **{"empty_answers": "outcome", **parts})


def supplied(
    *samples: str,
    selectors: dict[int, Selector] | None = None,
    made_by: FakeEmbedder | None = None,
) -> Calibration:
    """Return a calibration of supplied answers, T = 1 and g = 0.5, which decides with `selectors`."""
    made = replace(calibration(), parameters={m: DepolarizedMap(1.0, 0.5) for m in range(2, 6)})
    wanted = caller_fingerprint("mine", (made_by or embedder()).identity)
    return replace(made, fingerprint=wanted, selectors=selectors or {})


async def scored(samples: tuple[str, ...], active: Calibration | None = None, **asked: Any) -> Score:
    source = Active() if active is None else Active(active)
    command = ScoreCommand(samples=samples, source_label=asked.pop("source_label", "mine"), **asked)
    return await Scorer(FakeLLM(), embedder(), source).score(command)


def codes(score: Score) -> list[str]:
    return [warning.code for warning in score.warnings]


@pytest.mark.parametrize(
    ("candidate", "probability", "mode"),
    [
        ("a", FIRST, 0),
        ("b", SECOND, 1),
        (" b\n", SECOND, 1),
        ("mostly a", 0.64 * FIRST + 0.36 * NULL, 0),
        ("new", NULL, None),
        ("", NULL, None),
    ],
)
async def test_candidate_probability_is_of_the_served_matrix(
    candidate: str, probability: float, mode: int | None
) -> None:
    candidate_ = (await scored(TWO_TO_ONE, supplied(), candidate=candidate)).candidate
    assert candidate_ is not None
    assert candidate_.probability == pytest.approx(probability)
    assert candidate_.mode == mode
    assert candidate_.probability_correct is None


@pytest.mark.parametrize(
    ("candidate", "probability", "mode"), [("mostly a", 0.64 * 2 / 3, 0), ("new", 0.0, None), ("", 0.0, None)]
)
async def test_raw_score_uses_the_raw_matrix(candidate: str, probability: float, mode: int | None) -> None:
    score = await scored(TWO_TO_ONE, candidate=candidate)
    assert score.candidate is not None
    assert score.candidate.probability == pytest.approx(probability)
    assert score.candidate.mode == mode
    assert codes(score) == ["calibration_missing"]


@pytest.mark.parametrize("samples", [("a", "", ""), ("", "", "a")])
async def test_empty_candidate_matches_empty_answers(samples: tuple[str, ...]) -> None:
    score = await scored(samples, supplied(), candidate="")
    assert score.candidate is not None
    assert score.candidate.probability == pytest.approx(FIRST)
    other = await scored(samples, supplied(), candidate="mostly a")
    assert other.candidate is not None
    assert other.candidate.probability == pytest.approx(0.64 * SECOND + 0.36 * NULL)


async def test_empty_candidate_is_embedded_if_empty_answers_are() -> None:
    embedder_ = FakeEmbedder(DIMENSION, vectors={**VECTORS, "": AXES[0]}, empty_answers="embedded")
    score = await Scorer(FakeLLM(), embedder_, Active()).score(ScoreCommand(samples=TWO_TO_ONE, candidate=""))
    assert score.candidate is not None
    assert score.candidate.probability == pytest.approx(2 / 3)
    assert embedder_.calls == [("a", "b", "")]


@pytest.mark.parametrize(("candidate", "asked"), [("new", ("a", "b", "new")), ("b", ("a", "b"))])
async def test_the_candidate_is_embedded_with_the_answers_in_one_call(
    candidate: str, asked: tuple[str, ...]
) -> None:
    embedder_ = embedder()
    await Scorer(FakeLLM(), embedder_, Active()).score(ScoreCommand(samples=TWO_TO_ONE, candidate=candidate))
    assert embedder_.calls == [asked]


def what_it_says_of_the_answers(score: Score) -> dict[str, Any]:
    document = score.document(["modes", "samples", "spectrum"])
    return {k: v for k, v in document.items() if k not in ("id", "candidate", "timings_ms")}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["a", "b", "mostly a", "x", "y", ""]), min_size=2, max_size=5),
    st.sampled_from(["a", "b", "new", "x", "anything", "", " "]),
    st.sampled_from(["outcome", "embedded"]),
)
def test_a_candidate_never_counts_as_an_answer(
    samples: list[str], candidate: str, empty_answers: str
) -> None:
    """The rest of the score is bit-identical, and 0 <= p(y) <= lambda_max."""
    embedder_ = embedder(empty_answers=empty_answers)
    selectors = {m: selector(DepolarizedMap(1.0, 0.3)) for m in range(2, 6)}
    scorer = Scorer(FakeLLM(), embedder_, Active(supplied(selectors=selectors, made_by=embedder_)))
    plain = ScoreCommand(samples=tuple(samples), source_label="mine")
    without = asyncio.run(scorer.score(plain))
    with_one = asyncio.run(scorer.score(replace(plain, candidate=candidate)))
    assert what_it_says_of_the_answers(with_one) == what_it_says_of_the_answers(without)
    candidate_ = with_one.candidate
    assert candidate_ is not None
    assert 0 <= candidate_.probability <= with_one.lambda_max
    assert (candidate_.probability_correct is None) == (candidate_.mode is None)
    assert candidate_.mode is None or 0 <= (candidate_.probability_correct or 0.0) <= 1
    assert (candidate_.mode is None) or candidate_.mode < len(with_one.spectrum.eigenvalues)


async def test_p_correct_uses_the_selectors_map() -> None:
    """P(correct) is the agreement under the selector's g = 0.2, while g = 0.5 is served."""
    active = supplied(selectors={3: selector(DepolarizedMap(1.0, 0.2))})
    score = await scored(TWO_TO_ONE, active, candidate="mostly a")
    first = 0.8 * 2 / 3 + 0.2 / 8
    assert score.answer == "a"
    assert score.probability_correct == pytest.approx(first)
    assert score.candidate is not None
    assert score.candidate.probability == pytest.approx(0.64 * FIRST + 0.36 * NULL)
    agreed = agreement(first, 0.64 * first + 0.36 * 0.2 / 8)
    assert score.candidate.probability_correct == pytest.approx(float(sigmoid(agreed)))
    assert (score.decision, score.warnings) == (None, [])


@pytest.mark.parametrize(("missing", "count"), [(0.25, 1), (0.25, 3), (0.9, 3)])
async def test_p_correct_map_uses_the_evidence(missing: float, count: int) -> None:
    """At g = u a unanimous answer has lambda_max = p(y) = 1 - u + u/d, and that is P(correct)."""
    llm = TellingLLM(told={"question 0": math.log(1 - missing)})
    command = ScoreCommand(GenerationRequest(count, Sampling(), prompt="question 0"))
    selectors = {m: selector(EvidenceMap(1.0, 0.0, 1.0)) for m in (1, 3)}
    fits = by_evidence(
        fingerprint=Scorer(llm, embedder(), Active()).choice.fingerprint(command), selectors=selectors
    )
    score = await Scorer(llm, embedder(), Active(fits)).score(command)
    assert score.probability_correct == pytest.approx(1 - missing + missing / DIMENSION)


@pytest.mark.parametrize("candidate", [None, "a", "b", "mostly a", "new"])
@pytest.mark.parametrize("error", [0.1, 0.7])
async def test_default_p_correct_is_the_agreement_without_a_promise(
    candidate: str | None, error: float
) -> None:
    scorer = Scorer(FakeLLM(), embedder(), Active(), default=packaged(PAPER))
    target = Target(error, 0.9, by_caller=True)
    score = await scorer.score(ScoreCommand(samples=TWO_TO_ONE, candidate=candidate, target=target))
    # The most frequent answer is the dominant eigenvector: its p(y) is lambda_max.
    assert score.probability_correct == pytest.approx(score.lambda_max)
    candidate_, made = score.candidate, score.decision
    assert made is not None
    if candidate_ is not None:
        agreed = float(sigmoid(agreement(score.lambda_max, candidate_.probability)))
        expected = None if candidate == "new" else pytest.approx(agreed)
        assert candidate_.probability_correct == expected
    assert score.rank_score == score.decisive
    assert "default_probability" in codes(score)
    passes = score.decisive is not None and score.decisive >= 1 - error
    assert made.action == ("answer" if passes else "abstain")
    if candidate != "new":
        assert (made.threshold, made.coverage) == (pytest.approx(1 - error), None)
    unasked = await scorer.score(ScoreCommand(samples=TWO_TO_ONE, target=replace(target, by_caller=False)))
    assert unasked.decision is not None
    assert unasked.decision.action == "abstain"


@pytest.mark.parametrize("told", [0.0, 1e-7, -1e-12, -1e4, -math.inf, math.nan, math.inf])
async def test_p_correct_is_finite_for_any_logprobs(told: float) -> None:
    llm = TellingLLM(told={"question 0": told})
    command = ScoreCommand(
        GenerationRequest(3, Sampling(), prompt="question 0"), candidate="answer 0", target=EASY
    )
    wanted = Scorer(llm, embedder(), Active()).choice.fingerprint(command)
    fits = by_evidence(fingerprint=wanted, selectors={3: selector(EvidenceMap(1.0, 0.0, 1.0))})
    score = await Scorer(llm, embedder(), Active(fits)).score(command)
    missing = math.isnan(told) or told == math.inf  # not log-probabilities
    assert codes(score) == (["evidence_missing", "no_correctness_model"] if missing else [])
    for result in (score.probability_correct, score.decisive):
        assert result is None if missing else 0 <= result <= 1


UNANIMOUS, SPLIT = ("a", "a", "a"), TWO_TO_ONE  # P(correct) of 0.5625 and 0.396


@pytest.mark.parametrize(
    ("samples", "candidate", "target", "action", "threshold", "coverage"),
    [
        (UNANIMOUS, None, EASY, "answer", 0.5, 0.6),
        (SPLIT, None, EASY, "abstain", 0.5, 0.6),
        (UNANIMOUS, None, Target(0.11, 0.9), "abstain", 0.8, 0.3),
        (SPLIT, None, Target(0.37, 0.9), "answer", 0.0, 1.0),
        (UNANIMOUS, "new", EASY, "abstain", 0.5, 0.6),  # about the candidate, not about the answer
        (UNANIMOUS, "a", EASY, "answer", 0.5, 0.6),
    ],
)
async def test_text_at_or_above_the_threshold_is_let_through(
    samples: tuple[str, ...],
    candidate: str | None,
    target: Target,
    action: str,
    threshold: float,
    coverage: float,
) -> None:
    score = await scored(samples, supplied(selectors={3: selector()}), candidate=candidate, target=target)
    made = score.decision
    assert made is not None
    assert (made.action, made.target_error, made.confidence) == (action, target.error, target.confidence)
    assert made.threshold == threshold
    assert made.coverage == pytest.approx(coverage)
    assert codes(score) == ["unsupported_candidate"] * (candidate == "new")


@pytest.mark.parametrize("error", [0.05, 0.2, 0.37])
@pytest.mark.parametrize("candidate", ["new", ""])
async def test_unsupported_text_is_never_let_through_and_has_no_p_correct(
    candidate: str, error: float
) -> None:
    """The threshold of 0.37 is 0.0, which every probability reaches."""
    request = {"candidate": candidate, "target": Target(error, 0.9)}
    score = await scored(UNANIMOUS, supplied(selectors={3: selector()}), **request)
    candidate_, made = score.candidate, score.decision
    assert candidate_ is not None
    assert made is not None
    assert (candidate_.mode, candidate_.probability_correct, made.action) == (None, None, "abstain")
    assert score.probability_correct is not None
    unreachable = ["target_unreachable"] * (error == 0.05)
    assert sorted(codes(score)) == sorted(["unsupported_candidate", *unreachable])
    undecided = await scored(UNANIMOUS, supplied(selectors={3: selector()}), candidate=candidate)
    assert codes(undecided) == []


@pytest.mark.parametrize("off", [0.0, 1e-14, -1e-14])
async def test_probability_at_the_threshold_is_let_through_despite_rounding(off: float) -> None:
    counts = SelectiveCounts((0.5625 + off,), (100,), (5,))
    active = supplied(selectors={3: replace(selector(), counts=counts)})
    made = (await scored(UNANIMOUS, active, target=EASY)).decision
    assert made is not None
    assert made.action == "answer"


async def test_selector_is_of_the_received_number_of_answers() -> None:
    llm = TellingLLM(told={"question 0": math.log(0.75)})
    llm.deliver = 3
    command = ScoreCommand(GenerationRequest(5, Sampling(), prompt="question 0"), target=EASY)
    wanted = Scorer(llm, embedder(), Active()).choice.fingerprint(command)
    hopeless = replace(selector(), counts=SelectiveCounts((0.5,), (30,), (30,)))
    fits = by_evidence(fingerprint=wanted, selectors={3: selector(EvidenceMap(1.0, 0.0, 1.0)), 5: hopeless})
    score = await Scorer(llm, embedder(), Active(fits)).score(command)
    assert codes(score) == ["partial_samples"]
    assert score.decision is not None
    assert score.decision.action == "answer"


async def test_unreachable_target_abstains_and_names_a_reachable_one() -> None:
    active = supplied(selectors={3: selector()})
    score = await scored(UNANIMOUS, active, target=Target(0.05, 0.9))
    made = score.decision
    assert made is not None
    assert (made.action, made.threshold, made.coverage) == ("abstain", None, 0.0)
    assert codes(score) == ["target_unreachable"]
    assert "the lowest possible is 10.8 %." in score.warnings[0].message
    for error, threshold in ((0.107, None), (0.108, 0.8)):
        again = (await scored(UNANIMOUS, active, target=Target(error, 0.9))).decision
        assert again is not None
        assert again.threshold == threshold


async def test_warning_if_no_error_can_be_promised() -> None:
    hopeless = replace(selector(), counts=SelectiveCounts((0.5, 0.1), (30, 60), (30, 60)))
    score = await scored(UNANIMOUS, supplied(selectors={3: hopeless}), target=EASY)
    assert "no error can" in score.warnings[0].message


@pytest.mark.parametrize(
    ("active", "asked", "said"),
    [
        (None, {}, "no calibration is applied"),
        (
            supplied(selectors={3: selector()}),
            {"source_label": "other"},
            "no calibration is applied",
        ),
        (
            supplied(selectors={3: selector()}),
            {"calibration": "none"},
            "no calibration is applied",
        ),
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
async def test_decision_without_a_model_abstains_with_a_reason(
    active: Calibration | None, asked: dict[str, Any], said: str
) -> None:
    unasked = await scored(UNANIMOUS, active, candidate="b", **asked)
    score = await scored(UNANIMOUS, active, candidate="b", target=EASY, **asked)
    assert "no_correctness_model" not in codes(unasked)
    assert unasked.decision is None
    for score_ in (unasked, score):
        assert score_.probability_correct is None
        assert score_.candidate is not None
        assert score_.candidate.probability_correct is None
    made = score.decision
    assert made is not None
    assert (made.action, made.threshold, made.coverage) == ("abstain", None, 0.0)
    assert codes(score)[-1] == "no_correctness_model"
    assert said in score.warnings[-1].message


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
    command = ScoreCommand(samples=("\N{GRAPES}", "paris"), candidate=candidate, calibration="none")
    score = await Scorer(FakeLLM(), embedder_, Active()).score(command)
    assert codes(score) == ["indistinct_answers"] * warned


def drawn_counts(seed: int, size: int, sharpness: float) -> SelectiveCounts:
    rng = np.random.default_rng(seed)
    scores = rng.random(size).round(2)
    return selective_counts(scores, rng.random(size) < scores**sharpness)


counts = st.builds(
    drawn_counts,
    st.integers(0, 10**6),
    st.integers(20, 120),
    st.sampled_from([0.05, 0.2, 0.5, 1.0, 3.0]),
)


@settings(deadline=None, max_examples=100)
@given(counts, st.floats(0.01, 0.95), st.floats(0.0, 1.0))
def test_laxer_target_lets_at_least_as_much_through(made: SelectiveCounts, error: float, more: float) -> None:
    laxer = error + (0.95 - error) * more
    active = supplied(selectors={3: replace(selector(), counts=made)})
    strict, lax = (
        asyncio.run(scored(UNANIMOUS, active, target=Target(item, 0.9))).decision for item in (error, laxer)
    )
    assert strict is not None
    assert lax is not None
    assert strict.action == "abstain" or lax.action == "answer"
    assert lax.coverage >= strict.coverage


@pytest.mark.parametrize(
    ("judged", "candidate", "warned"),
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
async def test_warning_if_the_promise_is_about_other_texts(
    judged: JudgedTexts, candidate: str | None, warned: bool
) -> None:
    active = supplied(selectors={3: selector(judged=judged)})
    score = await scored(TWO_TO_ONE, active, candidate=candidate, target=EASY)
    assert ("correctness_label_mismatch" in [warning.code for warning in score.warnings]) == warned
    undecided = await scored(TWO_TO_ONE, active, candidate=candidate)
    assert "correctness_label_mismatch" not in [warning.code for warning in undecided.warnings]
