"""Scores as TLM's dictionaries."""

import warnings
from typing import Any, Literal, NotRequired, TypedDict

from eigencal._errors import EigencalError, UnexpectedAnswer
from eigencal._models.kept import KeptScore
from eigencal._models.score import Score

Meaning = Literal["probability_correct", "no_support", "candidate_probability", "lambda_max"]
MOST_MODES = 3  # that an explanation names


class TLMScore(TypedDict):
    """A score of a response."""

    trustworthiness_score: float | None
    """0..1, higher = more trustworthy, see `score_is`; None: no score was made, `log` says why."""
    score_is: Meaning | None
    """probability_correct: the probability that the response is right, by the calibration's verdicts.
    no_support: 0, for none of the answers drawn says what the response says.
    candidate_probability, lambda_max: no calibration with verdicts fits; the share of the answers' meaning
    that the response has (of a given one, and of one that was asked for), which is no probability of being
    right."""
    score_id: str | None
    """Id of the score: `Client.get_score` has all of it, for an hour."""
    log: NotRequired[dict[str, Any]]
    """explanation, where asked for; error, where there is no score."""


class TLMResponse(TLMScore):
    """A response and its score."""

    response: str | None
    """The answer that most of those drawn mean; None where none came."""


def response_of(score: Score, *, explains: bool) -> TLMResponse:
    """Return the answer to a prompt, and its score."""
    right = score.probability_correct
    meaning: Meaning = "lambda_max" if right is None else "probability_correct"
    value = score.lambda_max if right is None else right
    return {"response": score.answer, **_score(score, value, meaning, explains=explains)}


def score_of(score: Score, *, explains: bool) -> TLMScore:
    """Return the score of a response that was given as `candidate`."""
    judged = score.candidate
    if judged is None:
        raise UnexpectedAnswer("The service judged no candidate: it is of an earlier release.")
    if judged.probability_correct is not None:
        return _score(score, judged.probability_correct, "probability_correct", explains=explains)
    if judged.mode is None:
        return _score(score, 0.0, "no_support", explains=explains)
    return _score(score, judged.probability, "candidate_probability", explains=explains)


def _score(score: Score, value: float, meaning: Meaning, *, explains: bool) -> TLMScore:
    told: TLMScore = {"trustworthiness_score": value, "score_is": meaning, "score_id": score.id}
    return {**told, "log": {"explanation": explanation(score)}} if explains else told


def failed(error: EigencalError, number: int, *, response: bool) -> TLMScore | TLMResponse:
    """Return what stands in a list for a prompt that failed, and warn of it; `response`: a TLMResponse."""
    hint = "worth retrying" if error.retryable else "retrying will not help"
    warnings.warn(f"prompt[{number}] failed ({hint}): {error}", UserWarning, stacklevel=2)
    log = {"error": {"message": str(error), "retryable": error.retryable}}
    nothing: TLMScore = {"trustworthiness_score": None, "score_is": None, "score_id": None, "log": log}
    return {"response": None, **nothing} if response else nothing


def explanation(score: Score | KeptScore) -> str:
    """Return in a sentence what the answers say: what they mean, and how many mean it."""
    modes = (score.modes or ())[:MOST_MODES]
    said = ", ".join(f"{mode.share:.0%} mean {mode.answer!r}" for mode in modes if mode.share > 0)
    drawn = f"Of {score.num_samples} answers, {score.num_distinct} distinct, {said}."
    judged = score.candidate
    if judged is None:
        return drawn
    if judged.mode is None:
        return f"{drawn} None of them says what the response says."
    if judged.mode < len(score.modes or ()):
        near = repr((score.modes or ())[judged.mode].answer)
    else:
        near = "what few of them mean"
    # An embedder sees likeness: the text of another may be near a meaning without having it.
    return (
        f"{drawn} The response is nearest to {near}; it has {judged.probability:.0%} of the answers' meaning."
    )
