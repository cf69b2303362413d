"""Judge a text by an observation and a calibration (method, sections 7, 8 and 20)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Selector, answer_features
from service.claims.refusals import is_unanswered
from service.scoring.choice import ServedCalibration
from service.scoring.observation import Observation
from service.scoring.score import Candidate, Decision, Mode, Target
from service.spectral.correctness_model import SELF_CHECK
from service.spectral.reliability import rounded_ties
from service.spectral.selective import Promise, SelectiveCounts, promise
from service.spectral.spectrum import ServedSpectrum, born_probability, serve

MAX_MODES = 5
HELD_BACK = "Hold it back. "
UNSUPPORTED = (
    "None of the answers drawn agrees with it, so its probability of being right is unknown. More answers "
    "may help."
)
IS_INDISTINCT = "The embedder cannot distinguish it from an answer that says something else."
IS_REFUSAL = (
    "It does not answer the question: it is a refusal, a placeholder, an error or the question itself."
)


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The judgement of the candidate and of the leading answer.

    raw, served: the spectrum without and with the calibration. probability_correct: of the leading answer.
    num_agreeing: number of samples that lie closest to the candidate's mode. unavailable_reason: why there is
    no model of P(correct), or None. is_held_back: the judged text or most samples are refusals, or the
    embedder cannot distinguish it, so the decision is to abstain. num_refusals: number of samples that are
    refusals.
    """

    modes: Sequence[Mode]
    raw: ServedSpectrum
    served: ServedSpectrum
    probability_correct: float | None
    candidate: Candidate | None
    num_agreeing: int
    decision: Decision | None
    unavailable_reason: str | None
    is_held_back: bool
    num_refusals: int


def judge(
    observation: Observation,
    applied: ServedCalibration | None,
    target: Target | None,
    p_true: float | None = None,
    checked_by: str = "",
) -> Judgement:
    """Return the judgement of the candidate or, without one, of the leading answer.

    p_true: the self-check of the judged text in [0, 1], None if unknown. checked_by: the LLM and the prompt
    that made it, as in `Fingerprint.self_check`. Without a calibration, only refusals and indistinct texts
    get a decision. If the calibration has no model of P(correct) for this score, the decision is to abstain
    and gives the reason.
    """
    seen, candidate, answer = observation, observation.candidate, observation.leaders[0]
    raw = served = serve(seen.spectrum)
    if applied is not None and applied.map is not None:
        served = serve(seen.spectrum, applied.map.temperature, applied.map.depolarization)
    selector, why_none = _selector(seen, applied, p_true, checked_by)

    def correct(text: str) -> float | None:
        """Return P(correct) of a text; None for refusals and indistinct texts, and without its self-check."""
        if selector is None or text in seen.refusals or text in seen.indistinct:
            return None
        if SELF_CHECK in selector.model.features and text != seen.judged:
            return None
        map_ = selector.map_for(seen.evidence.missing_mass if seen.evidence else None)
        assert map_ is not None
        under = serve(seen.spectrum, map_.temperature, map_.depolarization)  # the model was fitted with it
        born = born_probability(seen.spectrum, under, seen.cosines(text))
        columns = answer_features(under.lambda_max, born.probability, p_true)
        return float(selector.model.predict(columns).item())

    of_answer, of_candidate, judged_candidate, num_agreeing = correct(answer), None, None, 0
    if candidate is not None and not seen.draws:
        of_candidate = of_answer
        judged_candidate = Candidate.model_construct(
            probability=None, mode=None, probability_correct=of_candidate
        )
    elif candidate is not None:
        born = born_probability(seen.spectrum, served, seen.cosines(candidate))
        # Unsupported texts among the rows were written by the LLM, and are right as often as its other
        # answers to the prompt. They say nothing about nonsense, which has the same features.
        of_candidate = None if born.mode is None else correct(candidate)
        judged_candidate = Candidate.model_construct(
            probability=born.probability, mode=born.mode, probability_correct=of_candidate
        )
        num_agreeing = 0 if born.mode is None else int((seen.nearest == born.mode).sum())

    decision = None
    refused = np.array([text in seen.refusals for text in seen.texts])[seen.index]
    held_back = _held_back(seen, refused)
    if target is not None and selector is not None and not held_back:
        decisive = of_answer if candidate is None else of_candidate
        decision = decide(selector.counts, decisive, target, len(seen.draws))
        reason = decision.reason + _of_other_texts(selector, answer, candidate)
        decision = decision.model_copy(update={"reason": reason})
    elif target is not None and (held_back or applied is not None):
        why = held_back or f"The probability that an answer is right is unknown: {why_none}."
        kept = None
        if selector is not None:
            kept = promise(selector.counts, target.error, target.confidence)
        decision = _decision("abstain", target, f"{HELD_BACK}{why}", kept)
    return Judgement(
        find_modes(seen, served),
        raw,
        served,
        of_answer,
        judged_candidate,
        num_agreeing,
        decision,
        why_none,
        bool(held_back),
        int(refused.sum()) if seen.draws else 0,
    )


def _selector(
    seen: Observation, applied: ServedCalibration | None, p_true: float | None, checked_by: str
) -> tuple[Selector | None, str | None]:
    """Return the model of P(correct) for the number of answers, or the reason why there is none."""
    if applied is None:
        return None, "no calibration is applied"
    calibration, count = applied.calibration, len(seen.draws)
    selector, needed = calibration.selectors.get(count), calibration.fingerprint.self_check
    if selector is None:
        why = f"its report, /calibrations/{calibration.id}/report, gives the reason"
        return None, f"calibration {calibration.id} has no correctness model for {count} answers; {why}"
    if selector.map_for(seen.evidence.missing_mass if seen.evidence else None) is None:
        needs = "log-probabilities, but these answers have none"
    elif SELF_CHECK in selector.model.features and (p_true is None or checked_by != needed):
        needs = f"a self-check by {needed}, and there is none (a self-check needs the prompt)"
    else:
        return selector, None
    return None, f"the model of calibration {calibration.id} needs {needs}"


def _held_back(seen: Observation, refused: NDArray[np.bool_]) -> str:
    """Return why the text is held back at any probability, or "". refused: (m,), for each answer."""
    if seen.judged in seen.refusals:
        return IS_REFUSAL
    if seen.judged in seen.indistinct:
        return IS_INDISTINCT
    if is_unanswered(False, refused):
        return f"{refused.sum()} of {refused.size} answers drawn do not answer the question."
    return ""


def _of_other_texts(selector: Selector, answer: str, candidate: str | None) -> str:
    """Return a caution if the calibration's verdicts are on another kind of text, or ""."""
    if selector.judged == "given" and candidate is None:
        return (
            " The calibration's verdicts are on given answers, but this decision is on a drawn answer, so "
            "the promise may not hold. Send the text that you will use as `candidate`."
        )
    if selector.judged == "dominant" and candidate not in (None, answer):
        return (
            " The calibration's verdicts are on drawn answers, but this decision is on a candidate, so the "
            "promise may not hold. Calibrate on rows that have such texts in `answer`."
        )
    return ""


def find_modes(observation: Observation, served: ServedSpectrum) -> list[Mode]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first."""
    modes = []
    for i, answer in enumerate(observation.leaders[:MAX_MODES]):
        samples = np.flatnonzero(observation.nearest == i)
        modes.append(
            Mode.model_construct(
                probability=float(served.eigenvalues[i]),
                share=samples.size / observation.nearest.size,
                answer=answer,
                samples=samples.tolist(),
            )
        )
    return modes


def decide(counts: SelectiveCounts, correct: float | None, target: Target, num_samples: int) -> Decision:
    """Return the decision on a text with this P(correct).

    `correct`: None if no answer supports the text; the decision is then to abstain. num_samples: number of
    drawn answers.
    """
    drawn, share = answers_drawn(num_samples), f"{100 * target.confidence:g} %"
    sure = f"with {drawn}, kept by {share} of calibrations made like this one"
    kept = promise(counts, target.error, target.confidence)
    if kept.threshold is None:
        return _decision("abstain", target, f"{HELD_BACK}{_unreachable(kept, target, sure)}", kept)
    if correct is None:
        return _decision("abstain", target, f"{HELD_BACK}{UNSUPPORTED}", kept)
    promised = f"at most {percent(target.error)} of the answers let through are wrong ({sure})"
    likely, needed = f"It is right with a probability of {correct:.3f}.", f"{kept.threshold:.3f}"
    # Rounded like the counts: scores that differ only in their last bits are equal.
    if rounded_ties(correct) < rounded_ties(kept.threshold):
        why = f"{HELD_BACK}{likely} At least {needed} is needed so that {promised}."
        return _decision("abstain", target, why, kept)
    return _decision("answer", target, f"Let it through. {likely} From {needed} on, {promised}.", kept)


def _decision(
    action: Literal["answer", "abstain"], target: Target, reason: str, kept: Promise | None
) -> Decision:
    return Decision.model_construct(
        action=action,
        reason=reason,
        target_error=target.error,
        confidence=target.confidence,
        threshold=None if kept is None else kept.threshold,
        coverage=0.0 if kept is None else kept.coverage,
    )


def _unreachable(missed: Promise, target: Target, sure: str) -> str:
    lowest = missed.lowest_error
    if lowest is None:
        advice = "no error can be promised. Calibrate on more rows."
    else:
        advice = f"the lowest possible is {percent(lowest)}. Use this target, or calibrate on more rows."
    return (
        f"The service cannot promise that at most {percent(target.error)} of the answers let through are "
        f"wrong ({sure}): {advice}"
    )


def answers_drawn(num_samples: int) -> str:
    """Return "1 answer", "20 answers", "0 answers"."""
    return f"{num_samples} answer{'' if num_samples == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share in [0, 1] as a percentage, rounded up, so that a promised error is not understated."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} %"
