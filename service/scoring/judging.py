"""The observation of a score, and the judgement of single texts (method, sections 7 and 8)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Selector, answer_features
from service.claims.refusals import essence, is_refusal, is_unanswered
from service.embedding.port import log_probabilities, with_candidate
from service.llm.samples import Draw, Generation
from service.scoring.choice import ServedCalibration
from service.scoring.score import (
    Candidate,
    Decision,
    Evidence,
    Judgement,
    Mode,
    ScoreCommand,
    ScoreWarning,
    Target,
    warning,
)
from service.spectral.correctness_model import SELF_CHECK
from service.spectral.evidence import mean_log_probability, missing_mass
from service.spectral.reliability import rounded_ties
from service.spectral.selective import Promise, SelectiveCounts, promise
from service.spectral.spectrum import (
    BornProbability,
    Identity,
    ServedSpectrum,
    Spectrum,
    born_probability_of,
    spectrum,
)

MAX_MODES = 5


@dataclass(frozen=True, eq=False)
class Observation:
    """The samples, an optional candidate, and the values computed from both.

    `texts`: the distinct answers; `index`: (m,), the position of each answer in them. Without samples, the
    candidate takes the place of the only answer, with its own log-probability. `evidence`: of the answers,
    None if one has no log-probability. `compared`: the text embedded for each and, last, for a candidate that
    is not among them. `space`: their vectors, (n, d); inner products give the kernel. `spectrum`: of the
    answers only. `p_true`: the self-check of the judged text (the candidate or `answer`), None if unknown;
    `checked_by`: as `Fingerprint.self_check`.
    """

    generation: Generation
    texts: Sequence[str]
    index: NDArray[np.int_]
    candidate: str | None
    compared: Sequence[str]
    space: NDArray[np.floating]
    spectrum: Spectrum
    applied: ServedCalibration | None
    evidence: Evidence | None
    p_true: float | None = None
    checked_by: str = ""

    @property
    def num_samples(self) -> int:
        """Return the number of samples, from 0."""
        return len(self.generation.draws)

    @cached_property
    def raw(self) -> ServedSpectrum:
        """The spectrum before calibration."""
        return Identity().serve(self.spectrum.eigenvalues, self.spectrum.dimension)

    @cached_property
    def served(self) -> ServedSpectrum:
        """The spectrum after calibration, if there is one."""
        if self.applied is None or self.applied.map is None:
            return self.raw
        return self.applied.map.serve(self.spectrum.eigenvalues, self.spectrum.dimension)

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The leading modes; see `find_modes`."""
        return find_modes(self.spectrum, self.served, self.texts, self.index)

    @property
    def answer(self) -> str:
        """Return the answer most aligned with the dominant eigenvector."""
        return self.modes[0].answer

    def vector(self, text: str) -> NDArray[np.floating]:
        """Return the vector of an answer, or of the candidate (d,)."""
        vector: NDArray[np.floating] = self.space[with_candidate(self.texts, self.candidate).index(text)]
        return vector

    def born(self, text: str, served: ServedSpectrum) -> BornProbability:
        """Return p(y) of an answer or of the candidate, by Born's rule."""
        return born_probability_of(self.spectrum, served, self.space[: len(self.texts)], self.vector(text))


def of_candidate(
    generation: Generation,
    candidate: str,
    log_probability: float,
    dimension: int,
    applied: ServedCalibration | None,
) -> Observation:
    """Return the observation without samples, by the candidate's own log-probability in nats."""
    texts, index, space = [candidate], np.zeros(1, dtype=np.intp), np.ones((1, 1))
    evidence = evidence_of([Draw(candidate, total_logprob=log_probability)], index)
    found = spectrum(space, dimension=dimension)
    return Observation(generation, texts, index, candidate, texts, space, found, applied, evidence)


def evidence_of(draws: Sequence[Draw], index: NDArray[np.int_]) -> Evidence | None:
    """Return the evidence of the answers; None unless each has a log-probability.

    index: (m,) position of each answer in the distinct texts.
    """
    totals = log_probabilities(draws)
    if totals is None:
        return None
    return Evidence(missing_mass=missing_mass(totals, index), mean_logprob=mean_log_probability(totals))


def find_modes(
    spectrum: Spectrum, served: ServedSpectrum, texts: Sequence[str], index: NDArray[np.int_]
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode has the largest squared projection; ties go to the most frequent answer.
    """
    squared = np.square(spectrum.projections)
    nearest, counts = nearest_modes(spectrum, index), np.bincount(index)
    modes = []
    for i in range(min(spectrum.rank, MAX_MODES)):
        # Equal up to rounding.
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(
            Mode.model_construct(
                probability=float(served.eigenvalues[i]),
                share=float(np.mean(nearest == i)),
                answer=texts[best],
                samples=np.flatnonzero(nearest == i).tolist(),
            )
        )
    return tuple(modes)


def nearest_modes(spectrum: Spectrum, index: NDArray[np.int_]) -> NDArray[np.int_]:
    """Return the eigenvector (m,) that lies closest to each answer. index: (m,) as in `Observation`."""
    nearest: NDArray[np.int_] = np.square(spectrum.projections).argmax(axis=1)[index]
    return nearest


TRUNCATED_SHARE = 0.5  # a score warns from this share of answers cut by max_tokens
EQUAL_COSINE = 1 - 1e-6


def sample_warnings(observation: Observation, command: ScoreCommand) -> list[ScoreWarning]:
    """Return warnings about the samples.

    `truncated_samples`: at least `TRUNCATED_SHARE` are cut by max_tokens. `indistinct_answers`: the embedder
    cannot distinguish some answers from answers that differ.
    """
    generation, warnings = observation.generation, list[ScoreWarning]()
    number = len(generation.draws)
    cut = sum(draw.truncated for draw in generation.draws)
    if command.generation is not None and cut >= TRUNCATED_SHARE * number:
        limit = command.generation.sampling.max_tokens
        message = (
            f"{cut} of {number} answers were cut by max_tokens ({limit}); the score is based on their "
            "beginnings. Allow more tokens, or ask the model for shorter answers."
        )
        warnings.append(warning("truncated_samples", message))
    count = len(observation.texts)
    if alike := num_indistinct(observation.compared[:count], observation.space[:count]):
        message = (
            f"The embedder cannot distinguish {alike} of the {count} distinct answers from answers that say "
            "something else (unknown characters, or texts equal up to its input limit). They count as "
            "agreement."
        )
        warnings.append(warning("indistinct_answers", message))
    return warnings


def num_indistinct(texts: Sequence[str], vectors: NDArray[np.floating]) -> int:
    """Return how many distinct texts have the vector of a text that says something else, 0..len(texts).

    vectors: unit rows (k, d). Texts that differ only in case, accents, spaces and punctuation say the same.
    """
    # Only above the diagonal: each pair once.
    first, second = np.nonzero(np.triu(vectors @ vectors.T > EQUAL_COSINE, 1))
    essence_of = cache(essence)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return len(
        {i for pair in pairs if essence_of(texts[pair[0]]) != essence_of(texts[pair[1]]) for i in pair}
    )


HELD_BACK = "Hold it back. "
UNSUPPORTED = (
    "None of the answers drawn agrees with it, so its probability of being right is unknown. More answers "
    "may help."
)


def decide(counts: SelectiveCounts, correct: float | None, target: Target, num_samples: int) -> Decision:
    """Return the decision on a text with this P(correct).

    `correct`: None for a text that no answer supports, which is never let through. num_samples: the number of
    answers that the counts are for.
    """
    drawn, share = answers_drawn(num_samples), f"{100 * target.confidence:g} %"
    sure = f"with {drawn}, kept by {share} of calibrations made like this one"
    kept = promise(counts, target.error, target.confidence)
    if kept.threshold is None:
        return held_back(target, _unreachable(kept, target, sure))
    if correct is None:
        return held_back(target, UNSUPPORTED, kept)
    # Rounded like the counts: scores that differ only in their last bits are equal.
    passes = rounded_ties(correct) >= rounded_ties(kept.threshold)
    promised = f"at most {percent(target.error)} of the answers let through are wrong ({sure})"
    likely, needed = f"It is right with a probability of {correct:.3f}.", f"{kept.threshold:.3f}"
    if not passes:
        return held_back(target, f"{likely} At least {needed} is needed so that {promised}.", kept)
    reason = f"Let it through. {likely} From {needed} on, {promised}."
    return _decision("answer", target, reason, kept)


def held_back(target: Target, why: str, missed: Promise | None = None) -> Decision:
    """Return the decision to abstain. missed: the promise, if the text is below its threshold."""
    return _decision("abstain", target, f"{HELD_BACK}{why}", missed)


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
    """Return a share in [0, 1] as a percentage, rounded up, because promises must not be rounded down."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} %"


@dataclass(frozen=True, slots=True, eq=False)
class Refusals:
    """Refusals of one question: answers without content.

    texts: the distinct refusals. drawn: (m,) mask of the samples.
    """

    texts: frozenset[str]
    drawn: NDArray[np.bool_]

    def reason(self, judged: str) -> str | None:
        """Return why refusals forbid letting the judged text through, or None."""
        if not is_unanswered(judged in self.texts, self.drawn):
            return None
        if judged in self.texts:
            return (
                "It does not answer the question: it is a refusal, a placeholder, an error or the question "
                "itself."
            )
        return f"{self.drawn.sum()} of {self.drawn.size} answers drawn do not answer the question."


def find_refusals(
    texts: Sequence[str], index: NDArray[np.int_], candidate: str | None, question: str | None
) -> Refusals:
    """Return the refusals among the distinct texts and the candidate.

    index: (m,) position of each sample in `texts`.
    """
    refusals = frozenset(text for text in with_candidate(texts, candidate) if is_refusal(text, question))
    return Refusals(refusals, np.array([text in refusals for text in texts], dtype=np.bool_)[index])


def without_refusals(
    judgement: Judgement, answer: str, candidate: str | None, refusals: Refusals, target: Target | None
) -> Judgement:
    """Return the judgement of `answer` and the candidate, adjusted for refusals.

    A refusal has no P(correct). If the judged text or most samples are refusals, the decision is to abstain,
    with or without a calibration.
    """
    judged, correct = judgement.candidate, judgement.probability_correct
    if judged is not None and candidate in refusals.texts:
        judged = judged.model_copy(update={"probability_correct": None})
    judgement = replace(
        judgement,
        candidate=judged,
        probability_correct=None if answer in refusals.texts else correct,
        num_refusals=int(refusals.drawn.sum()),
    )
    reason = refusals.reason(answer if candidate is None else candidate)
    if reason is None:
        return judgement
    decision = None
    if target is not None:
        decision = (judgement.decision or held_back(target, reason)).model_copy(
            update={"action": "abstain", "reason": f"{HELD_BACK}{reason}"}
        )
    return replace(judgement, decision=decision, is_refused=True)


def judge(observation: Observation, target: Target | None) -> tuple[Judgement, list[ScoreWarning]]:
    """Return the judgement of the candidate and of `observation.answer`, with warnings.

    Without a calibration there is no decision. A calibration without a model of P(correct) for this score
    abstains, and the decision gives the reason.
    """
    num_samples = observation.num_samples
    selector = _selector(observation)
    correct = None if isinstance(selector, str) else _of_answers(selector, observation)
    of_answer = None if correct is None else correct(observation.answer)
    candidate, share = _candidate(observation, correct)
    decisive = of_answer if candidate is None else candidate.probability_correct
    decision, why_none = None, selector if isinstance(selector, str) else None
    if target is not None and not isinstance(selector, str):
        decision = decide(selector.counts, decisive, target, num_samples)
        of_other = _of_other_texts(selector, observation.answer, observation.candidate)
        decision = decision.model_copy(update={"reason": decision.reason + of_other})
    elif target is not None and observation.applied is not None:
        decision = held_back(target, f"The probability that an answer is right is unknown: {why_none}.")
    judgement = Judgement(candidate, share, of_answer, decision, why_none)
    return judgement, _indistinct_candidate(observation)


def _selector(observation: Observation) -> Selector | str:
    """Return the model of P(correct) for the number of answers, or the reason why there is none."""
    applied, count, evidence = observation.applied, observation.num_samples, observation.evidence
    if applied is None:
        return "no calibration is applied"
    id_ = applied.calibration.id
    selector = applied.calibration.selectors.get(count)
    if selector is None:
        why = f"its report, /calibrations/{id_}/report, gives the reason"
        return f"calibration {id_} has no correctness model for {count} answers; {why}"
    if selector.map_for(evidence.missing_mass if evidence else None) is None:
        return f"the model of calibration {id_} needs log-probabilities, but these answers have none"
    if SELF_CHECK in selector.model.features:
        needed = applied.calibration.fingerprint.self_check
        if observation.p_true is None or observation.checked_by != needed:
            return f"the model of calibration {id_} needs a self-check by {needed}, and there is none"
    return selector


def _of_answers(selector: Selector, observation: Observation) -> Callable[[str], float | None]:
    """Return a function from a text, an answer or the candidate, to P(correct) in [0, 1].

    None for a text without the self-check that the model needs.
    """
    # The model was fitted with the selector's own map.
    map_ = selector.map_for(observation.evidence.missing_mass if observation.evidence else None)
    assert map_ is not None
    served = map_.serve(observation.spectrum.eigenvalues, observation.spectrum.dimension)

    judged = observation.answer if observation.candidate is None else observation.candidate

    def correct(text: str) -> float | None:
        if SELF_CHECK in selector.model.features and text != judged:
            return None
        born = observation.born(text, served).probability
        columns = answer_features(served.lambda_max, born, observation.p_true)
        return float(selector.model.predict(columns).item())

    return correct


def _candidate(
    observation: Observation, correct_of: Callable[[str], float | None] | None
) -> tuple[Candidate | None, float]:
    """Return the candidate with its probabilities, and the share of the samples on its mode."""
    if observation.candidate is None:
        return None, 0.0
    if not observation.num_samples:
        correct = None if correct_of is None else correct_of(observation.candidate)
        return Candidate.model_construct(probability=None, mode=None, probability_correct=correct), 0.0
    born = observation.born(observation.candidate, observation.served)
    # Unsupported texts among the rows were written by the LLM, and are right as often as its other answers to
    # the prompt. They say nothing about nonsense, which has the same features.
    correct = None if correct_of is None or born.mode is None else correct_of(observation.candidate)
    nearest = nearest_modes(observation.spectrum, observation.index)
    share = 0.0 if born.mode is None else float(np.mean(nearest == born.mode))
    candidate = Candidate.model_construct(
        probability=born.probability, mode=born.mode, probability_correct=correct
    )
    return candidate, share


def _indistinct_candidate(observation: Observation) -> list[ScoreWarning]:
    """Return a warning if the embedder cannot distinguish the candidate from an answer that differs."""
    candidate, texts = observation.candidate, observation.texts
    if candidate is None or candidate in texts:
        return []
    near = np.flatnonzero(observation.space[: len(texts)] @ observation.vector(candidate) > EQUAL_COSINE)
    meaning = essence(observation.compared[-1]) if near.size else ""
    if all(essence(observation.compared[i]) == meaning for i in near.tolist()):
        return []
    message = (
        "The embedder cannot distinguish the candidate from an answer that says something else (unknown "
        "characters, or texts equal up to its input limit). The candidate is judged like that answer."
    )
    return [warning("indistinct_answers", message)]


def _of_other_texts(selector: Selector, answer: str, candidate: str | None) -> str:
    """Return a sentence if the verdicts of the calibration are on other texts than the decision, or ""."""
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
