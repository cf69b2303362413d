"""Answers enough for a score: how many it takes, the time they have to come, and the error for too few."""

import time
from collections.abc import Sequence
from dataclasses import replace

from service.domain.errors import (
    DeadlineExceeded,
    EigencalError,
    LLMBadResponse,
    NoUsableAnswers,
    TooFewSamples,
)
from service.domain.models import EmptyAnswers, Generation, GenerationRequest
from service.domain.outcomes import supplied_draws, usable

MIN_SAMPLES = 2
TOO_FEW = (
    "A score takes two answers. One is enough where it has a log-probability and a calibration by evidence "
    "fits the request."
)

# Of a deadline, what is kept for embedding the answers that have come by then.
EMBED_SHARE, EMBED_RESERVE_S = 0.1, 0.5


def in_time(request: GenerationRequest, arrived: float | None) -> GenerationRequest:
    """Return the request with the deadline that leaves time to embed what has come by then."""
    if request.deadline_s is None:
        return request
    gone = 0.0 if arrived is None else time.perf_counter() - arrived
    reserved = min(EMBED_SHARE * request.deadline_s, EMBED_RESERVE_S)
    return replace(request, deadline_s=max(request.deadline_s - gone - reserved, 0.001))


def with_text(generation: Generation, empty_answers: EmptyAnswers) -> Generation:
    """Return the answers without those that hold no text, unless that means something; they are counted."""
    draws = usable(generation.draws, empty_answers)
    return replace(generation, draws=draws, num_empty=len(generation.draws) - len(draws))


def too_few(generation: Generation, request: GenerationRequest | None) -> EigencalError:
    """Return the error for no answer, or a single one that no calibration by evidence serves."""
    came, empty, asked = len(generation.draws), generation.num_empty, generation.requested
    if request is None and empty:
        return TooFewSamples(f"{empty} of {asked} samples are empty, which are no answers. {TOO_FEW}")
    if request is not None and empty and came + empty >= min(asked, MIN_SAMPLES):
        return NoUsableAnswers(
            f"{empty} of {came + empty} answers drawn hold no text (only reasoning, a tool call, or nothing)"
            f"; a score takes two. Each may have {request.sampling.max_tokens} tokens: allow a model that "
            "reasons more (EIGENCAL_MAX_TOKENS, or `sampling.max_tokens`). Where an empty answer means "
            "something, set EIGENCAL_EMPTY_ANSWERS."
        )
    if came >= asked:
        return TooFewSamples(TOO_FEW)
    if generation.missing_reason == "deadline":
        return DeadlineExceeded(
            f"Only {came} of {asked} answers came before the deadline; a score takes two."
        )
    return LLMBadResponse(f"The LLM server gave only {came} of {asked} answers; a score takes two.")


def supplied(samples: Sequence[str], logprobs: Sequence[float] | None) -> Generation:
    """Return answers that the caller has drawn as if drawn here."""
    draws = supplied_draws(samples, logprobs)
    return Generation(draws, requested=len(draws), model="")
