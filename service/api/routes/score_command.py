"""What the domain makes of a request to score."""

from dataclasses import replace
from typing import Any

from service.api.routes.score_schemas import SamplingIn, ScoreRequest
from service.domain.models import GenerationRequest, Message, Sampling, question_text
from service.domain.scoring.model import ScoreCommand
from service.domain.serving import Serving


def to_sampling(sent: SamplingIn | None, default: Sampling) -> Sampling:
    """Return the default with what the caller sent put over it."""
    if sent is None:
        return default
    given = sent.model_dump(exclude_unset=True)
    if "stop" in given:
        given["stop"] = tuple(given["stop"])
    return replace(default, **given)


def to_command(body: ScoreRequest, serving: Serving, arrived: float | None) -> ScoreCommand:
    """Return the domain's form of a request."""
    # Any: what types the call does not follow unpacked dictionaries.
    asked: dict[str, Any] = {
        "calibration": body.calibration,
        "candidate": body.candidate,
        "target": serving.target(body.target_error, body.confidence),
        "arrived": arrived,
    }
    if body.samples is not None:
        return ScoreCommand(
            samples=tuple(body.samples),
            logprobs=None if body.logprobs is None else tuple(body.logprobs),
            source_label=body.source_label or "",
            asked=question_text(body.prompt, _turns(body)),
            **asked,
        )
    return ScoreCommand(_generation(body, serving), **asked)


def _number(body: ScoreRequest, serving: Serving) -> int:
    """Return how many answers are drawn."""
    if body.effort is not None:
        return serving.efforts.num_samples(body.effort)
    return body.num_samples or serving.num_samples


def _turns(body: ScoreRequest) -> tuple[Message, ...] | None:
    if body.messages is None:
        return None
    return tuple(Message(turn.role, turn.content) for turn in body.messages)


def _generation(body: ScoreRequest, serving: Serving) -> GenerationRequest:
    messages = _turns(body)
    base = serving.sampling if messages is None else serving.messages_sampling
    return GenerationRequest(
        num_samples=_number(body, serving),
        sampling=to_sampling(body.sampling, base),
        prompt=body.prompt,
        messages=messages,
        model=body.model,
        deadline_s=None if body.deadline_ms is None else body.deadline_ms / 1000,
    )
