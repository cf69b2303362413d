"""Answers enough for a score: how many it takes, the time they have to come, and the error for too few."""

import time
from collections.abc import Sequence
from dataclasses import replace

from service.domain.errors import DeadlineExceeded, EigencalError, LLMBadResponse, TooFewSamples
from service.domain.models import Generation, GenerationRequest
from service.domain.outcomes import supplied_draws

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


def too_few(generation: Generation) -> EigencalError:
    """Return the error for a single answer that no calibration by evidence serves."""
    came, asked = len(generation.draws), generation.requested
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
