"""How single texts are judged by the answers drawn (method, sections 7 and 8)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.domain.decider import Decider, features
from service.domain.outcomes import outcome_vectors
from service.domain.scoring.answer_warnings import EQUAL_COSINE, essence
from service.domain.scoring.deciding import UNLIKE, decide, held_back
from service.domain.scoring.evidence import Evidence
from service.domain.scoring.judgement import Decision, JudgedCandidate, Judgement, Target
from service.domain.scoring.model import Score, ScoreWarning, shares_by_mode
from service.spectral.born import BornProbability, born_probability_of
from service.spectral.gram import Spectrum
from service.spectral.maps import DepolarizedMap, ServedSpectrum, TemperatureMap


def with_candidate(texts: Sequence[str], candidate: str | None) -> list[str]:
    """Return the distinct answers and, last, the candidate unless it is one of them."""
    return [*texts] if candidate is None or candidate in texts else [*texts, candidate]


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The distinct answers, a candidate beside them, and what was made of both.

    `embedded`: the vectors of `texts_to_embed(with_candidate(texts, candidate))`. `found`: the spectrum, of
    the answers alone.
    """

    texts: Sequence[str]
    candidate: str | None
    embedded: NDArray[np.float32]
    found: Spectrum

    def located(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the vectors of the answers (k, d) and that of one of them, or of the candidate (d,).

        d is one more than the embedder's where an empty text is an outcome of its own.
        """
        known = with_candidate(self.texts, self.candidate)
        space = outcome_vectors(known, self.embedded)
        return space[: len(self.texts)], space[known.index(text)]

    def born(self, text: str, served: ServedSpectrum) -> BornProbability:
        """Return p(y) of an answer, or of the candidate."""
        return born_probability_of(self.found, served, *self.located(text))


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """What tells P(correct) for one number of answers, with the map that makes its features."""

    decider: Decider
    map: DepolarizedMap | TemperatureMap
    evidence: Evidence | None

    def probability(self, text: str, outcomes: Outcomes) -> float:
        """Return P(correct) of an answer, or of the candidate, in [0, 1]."""
        # By the decider's own map: what is served was fitted on rows that its counts must not have seen.
        served = self.map.serve(outcomes.found.eigenvalues, outcomes.found.dimension)
        told = self.evidence
        columns = features(
            outcomes.born(text, served).probability,
            served.entropy,
            None if told is None else told.missing_mass,
            None if told is None else told.mean_log_probability,
        )
        return float(self.decider.model.predict(columns).item())


def judge(
    score: Score, outcomes: Outcomes, target: Target | None, *, unlike: bool = False
) -> tuple[Judgement, list[ScoreWarning]]:
    """Return what the score says of its candidate and of its answer, with the warnings on both.

    unlike: the prompt is too unlike the calibration's rows for anything to be let through. Where nothing
    tells P(correct), a warning says why only if a decision was asked for.
    """
    model = _model_of(score)
    correct = None if isinstance(model, str) else model.probability(score.answer, outcomes)
    judgement = Judgement(_candidate(score, outcomes, model), correct, unlike=unlike)
    warnings = _mistaken(outcomes)
    if target is None or (target.by_default and isinstance(model, str)):
        return judgement, warnings
    decision, about_decision = _decide(model, judgement, target)
    if unlike:
        decision = replace(decision, action="abstain", reason=UNLIKE)
    warnings += _unsupported(model, judgement) + _elsewhere(model, score.answer, outcomes.candidate)
    return replace(judgement, decision=decision), [*warnings, *about_decision]


def _candidate(score: Score, outcomes: Outcomes, model: _Model | str) -> JudgedCandidate | None:
    if outcomes.candidate is None:
        return None
    born = outcomes.born(outcomes.candidate, score.served)
    # The rows' texts that no answer supports are the LLM's own, right as often as others of such a prompt:
    # they tell nothing of nonsense, which looks the same from here.
    told = None if isinstance(model, str) or born.mode is None else model
    correct = None if told is None else told.probability(outcomes.candidate, outcomes)
    share = 0.0 if born.mode is None else float(shares_by_mode(outcomes.found)[born.mode])
    return JudgedCandidate(born.probability, born.mode, correct, share)


def _mistaken(outcomes: Outcomes) -> list[ScoreWarning]:
    """Return a warning when the embedder cannot tell the candidate from an answer that says another thing."""
    candidate, texts = outcomes.candidate, outcomes.texts
    if candidate is None or candidate in texts:
        return []
    answers, vector = outcomes.located(candidate)
    near = np.flatnonzero(answers @ vector > EQUAL_COSINE)
    said = essence(candidate) if near.size else ""
    if all(essence(texts[i]) == said for i in near.tolist()):
        return []
    message = (
        "The embedder cannot tell the candidate from an answer that says another thing (characters unknown "
        "to it, or texts equal as far as it reads): it is judged as if it were that answer."
    )
    return [ScoreWarning("indistinct_answers", message)]


def _unsupported(model: _Model | str, judgement: Judgement) -> list[ScoreWarning]:
    """Return a warning when no answer supports the text decided about, which is then not let through."""
    # Where there is no model nothing is let through anyway, and a warning says so.
    if isinstance(model, str) or judgement.supported:
        return []
    message = (
        "The candidate says what none of the answers says (its `mode` is null): it is not let through, and "
        "nothing tells how likely it is right. More answers may hold what it says."
    )
    return [ScoreWarning("unsupported_candidate", message)]


def _elsewhere(model: _Model | str, answer: str, candidate: str | None) -> list[ScoreWarning]:
    """Return a warning when the promise behind a decision is about texts of another kind."""
    judged = None if isinstance(model, str) else model.decider.judged
    if judged == "given" and candidate is None:
        message = (
            "The calibration's verdicts are on given answers, this decision is on one that was drawn: what "
            "it promises may not hold. Send the text that you are about to use as `candidate`."
        )
    elif judged == "dominant" and candidate not in (None, answer):
        message = (
            "The calibration's verdicts are on answers drawn, this decision is on a candidate: what it "
            "promises may not hold. Calibrate on rows with such texts as `answer`."
        )
    else:
        return []
    return [ScoreWarning("correctness_label_mismatch", message)]


def why_no_probability(score: Score) -> str | None:
    """Return why nothing tells P(correct) for this score, in words; None where something does."""
    model = _model_of(score)
    return model if isinstance(model, str) else None


def _model_of(score: Score) -> _Model | str:
    """Return what tells P(correct) for this score, or why nothing does."""
    if score.applied is None:
        return "no calibration is applied"
    calibration, count = score.applied.calibration, len(score.samples)
    if not calibration.deciders:
        return f"calibration {calibration.id} holds no model of being right; {_why(calibration.id)}"
    decider = calibration.deciders.get(count)
    if decider is None:
        lacks = f"calibration {calibration.id} holds no model of being right for {count} answers"
        return f"{lacks}; {_why(calibration.id)}"
    map_ = decider.map_for(score.evidence.missing_mass if score.evidence else None)
    if map_ is None:
        return f"the model of calibration {calibration.id} takes log-probabilities, which these answers lack"
    return _Model(decider, map_, score.evidence)


def _why(calibration_id: str) -> str:
    return f"its report, /calibrations/{calibration_id}/report, says why"


def _decide(model: _Model | str, judgement: Judgement, target: Target) -> tuple[Decision, list[ScoreWarning]]:
    if isinstance(model, str):
        why = f"Nothing tells how likely an answer is right: {model}."
        return held_back(target, why), [ScoreWarning("no_correctness_model", why)]
    return decide(model.decider.counts, judgement.decisive, target)
