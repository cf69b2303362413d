"""What TLM's presets and options are here: honoured, ignored with a warning, or refused."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from eigencal._errors import InvalidSetup
from eigencal._models.requests import Effort, ScoreOptions

QualityPreset = Literal["base", "low", "medium", "high", "best"]
EFFORTS: dict[str, Effort] = {
    "base": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "best": "high",
}
TASKS = ("default", "classification", "code_generation")
HONOURED = ("model", "max_tokens", "num_consistency_samples", "log")
# They steer how TLM asks its LLM about an answer, which is not asked here, or how it compares answers.
IGNORED = (
    "num_self_reflections",
    "use_self_reflection",
    "reasoning_effort",
    "similarity_measure",
    "disable_persistence",
)
REFUSED = {
    "custom_eval_criteria": "only the uncertainty of answers is judged",
    "disable_trustworthiness": "the score is all there is",
}
FEWEST = 2  # answers that can be compared


class ValidationError(InvalidSetup, ValueError):
    """An argument or option that TLM knows and this service cannot honour, or that neither knows."""


@dataclass(frozen=True, slots=True)
class Request:
    """What every request of a TLM has, and what is told of its score."""

    fields: ScoreOptions
    explains: bool


def request_of(preset: str, task: str, options: Mapping[str, Any] | None) -> Request:
    """Return what a preset, a task and options come to. Raises ValidationError; warns of what is ignored."""
    if preset not in EFFORTS:
        raise ValidationError(f"quality_preset {preset!r}: it must be one of {', '.join(EFFORTS)}.")
    _check_task(task)
    given = dict(options or {})
    _check_options(given)
    count = given.get("num_consistency_samples")
    drawn = {"effort": EFFORTS[preset]} if count is None else {"num_samples": _count(count)}
    sampling = {"sampling": {"max_tokens": given["max_tokens"]}} if "max_tokens" in given else {}
    model = {"model": given["model"]} if "model" in given else {}
    return Request(cast(ScoreOptions, {**drawn, **sampling, **model}), _explains(given.get("log", ())))


def _check_task(task: str) -> None:
    if task not in TASKS:
        raise ValidationError(f"task {task!r}: it must be one of {', '.join(TASKS)}.")
    if task == "classification":
        raise ValidationError("task 'classification' is not here: answers are not constrained to classes.")
    if task == "code_generation":
        _warn("task='code_generation'")


def _check_options(given: Mapping[str, Any]) -> None:
    for name in given:
        if name in REFUSED:
            raise ValidationError(f"The option {name} is not here: {REFUSED[name]}.")
        if name in IGNORED:
            _warn(f"The option {name}")
        elif name == "num_candidate_responses":
            _check_candidates(given[name])
        elif name not in HONOURED:
            raise ValidationError(f"The option {name} is neither TLM's nor Eigencal's.")


def _check_candidates(count: object) -> None:
    if count != 1:
        raise ValidationError(
            "num_candidate_responses must be 1: the answer returned is what most of those drawn mean."
        )


def _count(count: object) -> int:
    if not isinstance(count, int) or count < FEWEST:
        raise ValidationError(f"num_consistency_samples must be at least {FEWEST}: answers are compared.")
    return count


def _explains(log: Sequence[str]) -> bool:
    unknown = sorted(set(log) - {"explanation"})
    if unknown:
        raise ValidationError(f"log: {', '.join(unknown)} is not here, only explanation.")
    return "explanation" in log


def check_arguments(given: Mapping[str, Any]) -> None:
    """Raise ValidationError for keyword arguments of a call that cannot be honoured; warn of `perplexity`."""
    for name in given:
        if name == "perplexity":
            _warn("The argument perplexity")
        elif name == "constrain_outputs":
            raise ValidationError("constrain_outputs is not here: answers are not constrained.")
        else:
            raise ValidationError(f"The argument {name} is neither TLM's nor Eigencal's.")


def _warn(what: str) -> None:
    warnings.warn(f"{what} is ignored: Eigencal judges by comparing answers.", UserWarning, stacklevel=6)
