"""What a score rests on, and what it says of single texts (method, sections 7 and 8)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import PROMISE_MEANING, Selector, answer_features
from service.claims.refusals import essence, is_refusal, is_unanswered
from service.embedding.port import log_probabilities
from service.llm.port import Draw, Generation
from service.scoring.choice import Applied
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
from service.spectral.correctness_model import NO_VERDICTS
from service.spectral.evidence import mean_log_probability, missing_mass
from service.spectral.reliability import rounded_ties
from service.spectral.selective import Promise, SelectiveCounts, promise
from service.spectral.spectrum import BornProbability, Identity, ServedSpectrum, Spectrum, born_probability_of

MAX_MODES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The answers, a candidate beside them, and what was made of both.

    `texts`: the distinct answers. `compared`: the embedded text of each and, last, that of a candidate which
    is none of them. `space`: their vectors, (n, d), whose products are the kernel. `spectrum`: of the
    answers alone, `raw` as it came, `served` as to act on.
    """

    generation: Generation
    texts: Sequence[str]
    candidate: str | None
    compared: Sequence[str]
    space: NDArray[np.floating]
    spectrum: Spectrum
    raw: ServedSpectrum
    served: ServedSpectrum
    applied: Applied | None
    evidence: Evidence | None
    modes: tuple[Mode, ...]

    @property
    def answer(self) -> str:
        """Return the answer most aligned with the dominant eigenvector."""
        return self.modes[0].answer

    def vector(self, text: str) -> NDArray[np.floating]:
        """Return the vector of an answer, or of the candidate (d,)."""
        vector: NDArray[np.floating] = self.space[with_candidate(self.texts, self.candidate).index(text)]
        return vector

    def born(self, text: str, served: ServedSpectrum) -> BornProbability:
        """Return p(y) of an answer, or of the candidate."""
        return born_probability_of(self.spectrum, served, self.space[: len(self.texts)], self.vector(text))


def basis_of(
    generation: Generation,
    texts: Sequence[str],
    candidate: str | None,
    compared: Sequence[str],
    space: NDArray[np.floating],
    spectrum: Spectrum,
    counts: NDArray[np.int_],
    applied: Applied | None,
    evidence: Evidence | None,
) -> Basis:
    """Return what a score of these answers rests on."""
    raw = Identity().serve(spectrum.eigenvalues, spectrum.dimension)
    served = applied.map.serve(spectrum.eigenvalues, spectrum.dimension) if applied and applied.map else raw
    modes = find_modes(spectrum, served, texts, counts)
    return Basis(
        generation, texts, candidate, compared, space, spectrum, raw, served, applied, evidence, modes
    )


def evidence_of(draws: Sequence[Draw], index: NDArray[np.int_]) -> Evidence | None:
    """Return the evidence of the answers, None unless each has a log-probability.

    index: (m,) which distinct text each answer is.
    """
    totals = log_probabilities(draws)
    if totals is None:
        return None
    return Evidence(missing_mass=missing_mass(totals, index), mean_logprob=mean_log_probability(totals))


def find_modes(
    spectrum: Spectrum, served: ServedSpectrum, texts: Sequence[str], counts: NDArray[np.int_]
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode is the one with the largest squared projection, ties to the most frequent.
    """
    squared = np.square(spectrum.projections)
    share = shares_by_mode(spectrum)
    modes = []
    for i in range(min(spectrum.rank, MAX_MODES)):
        # Equal but for rounding.
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(
            Mode.model_construct(
                probability=float(served.eigenvalues[i]), share=float(share[i]), answer=texts[best]
            )
        )
    return tuple(modes)


def shares_by_mode(spectrum: Spectrum) -> NDArray[np.float64]:
    """Return the shares (r,) of the answers that lie closest to each eigenvector; they sum to 1."""
    nearest = np.square(spectrum.projections).argmax(axis=1)
    return np.bincount(nearest, weights=spectrum.weights, minlength=spectrum.rank).astype(np.float64)


TRUNCATED_SHARE = 0.5  # of the answers cut by max_tokens, from which on a score warns
EQUAL_COSINE = 1 - 1e-6


def partial_warning(generation: Generation) -> list[ScoreWarning]:
    """Return a warning when fewer answers count than were asked for."""
    usable, empty, asked = len(generation.draws), generation.num_empty, generation.requested
    if usable >= asked:
        return []
    came = usable + empty
    why = "before the deadline" if generation.missing_reason == "deadline" else "without an error"
    reasons = [f"{came} of {asked} answers came {why}"] if came < asked else []
    if empty:
        reasons.append(f"{empty} of {came} answers hold no text (only reasoning, a tool call, or nothing)")
    rest = f"the {usable} others" if empty else "those"
    return [warning("partial_samples", f"{', and '.join(reasons)}; the score rests on {rest}.")]


def truncated_warning(generation: Generation, command: ScoreCommand) -> list[ScoreWarning]:
    """Return a warning when half of the answers or more were cut: their meaning may not have come yet."""
    cut, came = sum(draw.truncated for draw in generation.draws), len(generation.draws)
    if command.generation is None or cut < TRUNCATED_SHARE * came:
        return []
    limit = command.generation.sampling.max_tokens
    message = (
        f"{cut} of {came} answers were cut by max_tokens ({limit}); the score rests on their beginnings. "
        "Allow more tokens, or have the model answer more briefly."
    )
    return [warning("truncated_samples", message)]


def other_text_warning(generation: Generation) -> list[ScoreWarning]:
    """Return a warning if log-probabilities of answers belong to another text: they are no evidence."""
    number = sum(draw.logprobs_of_other_text for draw in generation.draws)
    if not number:
        return []
    message = (
        f"The log-probabilities of {number} of {len(generation.draws)} answers belong to another "
        "text: their tokens do not spell the answer. They are not used."
    )
    return [warning("logprobs_of_other_text", message)]


def indistinct_warning(alike: int, distinct_: int) -> list[ScoreWarning]:
    """Return a warning when the embedder cannot tell `alike` distinct answers from others that differ."""
    if not alike:
        return []
    message = (
        f"The embedder cannot tell {alike} of the {distinct_} distinct answers from others that say other "
        "things (characters unknown to it, or texts equal as far as it reads): they count as agreement."
    )
    return [warning("indistinct_answers", message)]


def num_indistinct(texts: Sequence[str], vectors: NDArray[np.floating]) -> int:
    """Return how many distinct texts have the vector of another that says something else, 0..len(texts).

    vectors: unit rows (k, d). Texts that differ in case, accents, spaces and punctuation alone say the same.
    """
    # Above the diagonal alone: each pair once, and none with itself.
    first, second = np.nonzero(np.triu(vectors @ vectors.T > EQUAL_COSINE, 1))
    essence_of = cache(essence)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return len(
        {i for pair in pairs if essence_of(texts[pair[0]]) != essence_of(texts[pair[1]]) for i in pair}
    )


HELD_BACK = "Hold it back. "
NAME_A_TARGET = "Calibrate, or name a `target_error` in the request to decide by it without a promise."
NO_COUNTS = SelectiveCounts((), (), ())
UNVERIFIED = "the default calibration, which serves here, uses no labels of yours"
DEFAULT_PROBABILITY = warning(
    "default_probability",
    "`probability_correct` is how far the answers agree, and uses no labels of yours. It was within 0.13 of "
    "the share of right answers to trivia questions by two small LLMs (kernel `facts`), and 0.4 too low on "
    "easy questions. A calibration on labelled questions of yours mends that: POST /calibrate.",
)
UNSUPPORTED = (
    "None of the answers drawn says what it says, so nothing tells how likely it is right. More answers may."
)
UNLIKE = (
    f"{HELD_BACK}The question, or the length of its answers, is unlike those that the calibration was made "
    "of: what it says of questions like those need not hold here."
)


def decide(
    counts: SelectiveCounts, correct: float | None, target: Target, num_samples: int
) -> tuple[Decision, list[ScoreWarning]]:
    """Return whether to let a text of this P(correct) through, and what to know about it.

    `correct`: None for a text that no answer supports: it is let through by no threshold. num_samples: the
    number of answers that the counts are for.
    """
    drawn, share = answers_drawn(num_samples), f"{100 * target.confidence:g} %"
    sure = f"with {drawn}, kept by {share} of calibrations made like this one"
    kept = promise(counts, target.error, target.confidence)
    if kept.threshold is None:
        reason = _unreachable(kept, target, sure)
        # Of a target that nobody named there is nothing to warn of.
        about = [] if target.by_default else [warning("target_unreachable", f"{reason} {PROMISE_MEANING}")]
        return held_back(target, reason), about
    if correct is None:
        return held_back(target, UNSUPPORTED, kept), []
    # Rounded as the counts were: scores that differ in their last bits only are one.
    passes = rounded_ties(correct) >= rounded_ties(kept.threshold)
    promised = f"at most {percent(target.error)} of the answers let through are wrong ({sure})"
    likely, needed = f"Right with a probability of {correct:.3f}", f"{kept.threshold:.3f}"
    if not passes:
        return held_back(target, f"{likely}, and {needed} is needed so that {promised}.", kept), []
    reason = f"Let it through. {likely}; from {needed} on, {promised}."
    return _decision("answer", target, reason, kept), []


def _decide_unverified(correct: float, target: Target) -> Decision:
    """Return whether to let a text through by a P(correct) that rests on no verdict; nothing is promised."""
    needed = 1 - target.error
    passes = rounded_ties(correct) >= rounded_ties(needed)
    reason = (
        f"{'Let it through. ' if passes else HELD_BACK}Right with a probability of {correct:.3f} by the "
        f"default calibration, and {needed:.3f} is asked for. It is no promise: the default calibration uses "
        "no labels of yours."
    )
    return Decision.model_construct(
        action="answer" if passes else "abstain",
        reason=reason,
        target_error=target.error,
        confidence=target.confidence,
        threshold=needed,
        coverage=None,
    )


def held_back(target: Target, why: str, missed: Promise | None = None) -> Decision:
    """Return the decision to abstain; missed: the promise whose threshold the text misses."""
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
        instead = "no error can. Calibrate on more rows."
    else:
        instead = f"the lowest that can is {percent(lowest)}. Ask for that, or calibrate on more rows."
    return (
        f"That at most {percent(target.error)} of the answers let through are wrong cannot be promised "
        f"({sure}): {instead}"
    )


def answers_drawn(num_samples: int) -> str:
    """Return "1 answer", "20 answers", "0 answers (effort none)"."""
    counted = f"{num_samples} answer{'' if num_samples == 1 else 's'}"
    return counted if num_samples else f"{counted} (effort none)"


def percent(share: float) -> str:
    """Return a share in [0, 1] as percents, rounded up: a promise must not be rounded down."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} %"


def with_candidate(texts: Sequence[str], candidate: str | None) -> list[str]:
    """Return the distinct answers and, last, the candidate unless it is one of them."""
    return [*texts] if candidate is None or candidate in texts else [*texts, candidate]


@dataclass(frozen=True, slots=True, eq=False)
class Refusals:
    """Answers without content to one question: their distinct texts, and a mask (m,) of the drawn answers."""

    texts: frozenset[str]
    drawn: NDArray[np.bool_]

    def reason(self, judged: str) -> str | None:
        """Return why the judged text is not let through, None if refusals do not prevent it."""
        if not is_unanswered(judged in self.texts, self.drawn):
            return None
        if judged in self.texts:
            return (
                "It does not answer the question: it refuses, or is a placeholder, an error or the question."
            )
        return f"{self.drawn.sum()} of {self.drawn.size} answers drawn do not answer the question."


def find_refusals(
    texts: Sequence[str], index: NDArray[np.int_], candidate: str | None, question: str | None
) -> Refusals:
    """Return the answers without content among distinct texts, and a candidate.

    index: (m,) which of them each answer drawn is.
    """
    known = frozenset(text for text in with_candidate(texts, candidate) if is_refusal(text, question))
    return Refusals(known, np.array([text in known for text in texts], dtype=np.bool_)[index])


def without_refusals(
    judgement: Judgement, answer: str, candidate: str | None, refusals: Refusals, target: Target | None
) -> tuple[Judgement, list[ScoreWarning]]:
    """Return the judgement of a score's `answer` and a candidate with what refusals change, and a warning.

    A refusal has no P(correct). If the judged text or most drawn answers are refusals, the decision is to
    abstain, with or without a calibration.
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
        return judgement, []
    decision = None
    if target is not None:
        decision = (judgement.decision or held_back(target, reason)).model_copy(
            update={"action": "abstain", "reason": f"{HELD_BACK}{reason}"}
        )
    return replace(judgement, decision=decision, is_refused=True), [warning("refusals", reason)]


def judge(
    basis: Basis, target: Target | None, *, unlike: bool = False
) -> tuple[Judgement, list[ScoreWarning]]:
    """Return what the answers say of the candidate and of `basis.answer`, with the warnings on both.

    unlike: the prompt is too unlike the calibration's rows for anything to be let through. Where nothing
    tells P(correct), a warning says why only if a decision was asked for. Without a calibration of this
    set-up there is a decision only where the caller has named a target.
    """
    num_samples = len(basis.generation.draws)
    selector = _selector(basis.applied, num_samples, basis.evidence)
    correct = None if isinstance(selector, str) else _of_answers(selector, basis)
    own = None if correct is None else correct(basis.answer)
    candidate, share = _candidate(basis, correct)
    decisive = own if candidate is None else candidate.probability_correct
    no_model, warnings = _why_no_model(selector), _mistaken(basis)
    if target is None or (target.by_default and no_model):
        return Judgement(candidate, share, own, None, no_model, unlike), warnings
    decision, about_decision = _decided(selector, decisive, target, num_samples, unlike=unlike)
    if not isinstance(selector, str):
        warnings += _unsupported(candidate) + _elsewhere(selector, basis.answer, basis.candidate)
    return Judgement(candidate, share, own, decision, no_model, unlike), [*warnings, *about_decision]


def judge_alone(
    applied: Applied | None,
    log_probability: float,
    dimension: int,
    target: Target | None,
    *,
    unlike: bool = False,
) -> tuple[Judgement, list[ScoreWarning]]:
    """Return what a candidate's own log-probability, in nats, says of it: no answer was drawn.

    It is judged as if it were the one answer drawn. unlike: as for `judge`. Where a calibration other than
    the default cannot tell, a warning says so, whether a decision was asked for or not: there is nothing else
    in such a score.
    """
    selector = _selector(applied, 0, None)
    correct: float | None = None
    if not isinstance(selector, str):
        map_ = selector.map_for(missing_mass([log_probability], [0]))
        assert map_ is not None
        agreed = map_.serve(np.ones(1), dimension).lambda_max
        correct = float(selector.model.predict(answer_features([agreed], [agreed])).item())
    candidate = Candidate.model_construct(probability=None, mode=None, probability_correct=correct)
    no_model, decision, warnings = _why_no_model(selector), None, list[ScoreWarning]()
    if target is not None and not (target.by_default and no_model):
        decision, warnings = _decided(selector, correct, target, 0, unlike=unlike)
    elif isinstance(selector, str) and applied is not None:
        warnings = [_no_model(selector)]
    return Judgement(candidate, 0.0, correct, decision, no_model, unlike), warnings


def _selector(applied: Applied | None, count: int, evidence: Evidence | None) -> Selector | str:
    """Return what tells P(correct) by so many answers, or why nothing does."""
    if applied is None:
        return "no calibration is applied"
    if applied.default is not None:
        map_ = applied.map if count else applied.calibration.evidence[1]
        return Selector(map_, NO_VERDICTS, NO_COUNTS, "mixed")
    of = applied.calibration.id
    selector = applied.calibration.selectors.get(count)
    if selector is None:
        why = f"its report, /calibrations/{of}/report, says why"
        return f"calibration {of} holds no model of being right for {count} answers; {why}"
    if count and selector.map_for(evidence.missing_mass if evidence else None) is None:
        return f"the model of calibration {of} takes log-probabilities, which these answers lack"
    return selector


def _why_no_model(selector: Selector | str) -> str | None:
    """Return why no verdicts tell P(correct), in words; None where they do."""
    if isinstance(selector, str):
        return selector
    return UNVERIFIED if selector.counts is NO_COUNTS else None


def _of_answers(selector: Selector, basis: Basis) -> Callable[[str], float]:
    """Return what tells P(correct), in [0, 1], of an answer or of the candidate."""
    # By the selector's own map, which its model was fitted with.
    map_ = selector.map_for(basis.evidence.missing_mass if basis.evidence else None)
    assert map_ is not None
    served = map_.serve(basis.spectrum.eigenvalues, basis.spectrum.dimension)

    def correct(text: str) -> float:
        columns = answer_features(served.lambda_max, basis.born(text, served).probability)
        return float(selector.model.predict(columns).item())

    return correct


def _decided(
    model: Selector | str, correct: float | None, target: Target, num_samples: int, *, unlike: bool
) -> tuple[Decision, list[ScoreWarning]]:
    """Return the decision on a text of this P(correct); model: what tells it, or why nothing does."""
    no_model = _why_no_model(model)
    if isinstance(model, str):
        about = _no_model(model)
        decision, warnings = held_back(target, about.message), [about]
    elif no_model and correct is None:
        decision, warnings = held_back(target, UNSUPPORTED), []
    elif no_model and target.by_caller and correct is not None:
        decision, warnings = _decide_unverified(correct, target), []
    elif no_model:
        about = warning("no_correctness_model", f"Nothing is decided: {no_model}. {NAME_A_TARGET}")
        decision, warnings = held_back(target, about.message), [about]
    else:
        decision, warnings = decide(model.counts, correct, target, num_samples)
    if unlike:
        decision = decision.model_copy(update={"action": "abstain", "reason": UNLIKE})
    return decision, warnings


def _no_model(why: str) -> ScoreWarning:
    return warning("no_correctness_model", f"Nothing tells how likely an answer is right: {why}.")


def _candidate(basis: Basis, tells: Callable[[str], float] | None) -> tuple[Candidate | None, float]:
    """Return what the answers say of the candidate, and the share of them on its mode."""
    if basis.candidate is None:
        return None, 0.0
    born = basis.born(basis.candidate, basis.served)
    # The rows' texts that no answer supports are the LLM's own, right as often as others of such a prompt:
    # they tell nothing of nonsense, which looks the same from here.
    correct = None
    if tells is not None and born.mode is not None:
        correct = tells(basis.candidate)
    share = 0.0 if born.mode is None else float(shares_by_mode(basis.spectrum)[born.mode])
    candidate = Candidate.model_construct(
        probability=born.probability, mode=born.mode, probability_correct=correct
    )
    return candidate, share


def _mistaken(basis: Basis) -> list[ScoreWarning]:
    """Return a warning when the embedder cannot tell the candidate from an answer that says another thing."""
    candidate, texts = basis.candidate, basis.texts
    if candidate is None or candidate in texts:
        return []
    near = np.flatnonzero(basis.space[: len(texts)] @ basis.vector(candidate) > EQUAL_COSINE)
    meaning = essence(basis.compared[-1]) if near.size else ""
    if all(essence(basis.compared[i]) == meaning for i in near.tolist()):
        return []
    message = (
        "The embedder cannot tell the candidate from an answer that says another thing (characters unknown "
        "to it, or texts equal as far as it reads): it is judged as if it were that answer."
    )
    return [warning("indistinct_answers", message)]


def _unsupported(candidate: Candidate | None) -> list[ScoreWarning]:
    """Return a warning when no answer supports the text decided about, which is then not let through."""
    if candidate is None or candidate.mode is not None:
        return []
    message = (
        "The candidate says what none of the answers says (its `mode` is null): it is not let through, and "
        "nothing tells how likely it is right. More answers may hold what it says."
    )
    return [warning("unsupported_candidate", message)]


def _elsewhere(selector: Selector, answer: str, candidate: str | None) -> list[ScoreWarning]:
    """Return a warning when the promise behind a decision is about texts of another kind."""
    if selector.judged == "given" and candidate is None:
        message = (
            "The calibration's verdicts are on given answers, this decision is on one that was drawn: what "
            "it promises may not hold. Send the text that you are about to use as `candidate`."
        )
    elif selector.judged == "dominant" and candidate not in (None, answer):
        message = (
            "The calibration's verdicts are on answers drawn, this decision is on a candidate: what it "
            "promises may not hold. Calibrate on rows with such texts as `answer`."
        )
    else:
        return []
    return [warning("correctness_label_mismatch", message)]
