"""What is drawn beside a call, and how its own answer counts among what is drawn."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.domain.chat.prompt import Api, drawn_alike, token_limit, wire_prompt
from service.domain.models import Draw, GenerationRequest
from service.domain.scoring.enough import MIN_SAMPLES
from service.domain.scoring.judgement import Target
from service.domain.scoring.model import Drawn, ScoreCommand
from service.domain.serving import Serving


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller asks of the score beside its answer."""

    num_samples: int
    target: Target
    calibration: str = "active"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draw; `own_counts`: one answer less, since the caller's own is drawn like them.

    `takes_evidence`: it counts only with its log-probabilities, or it would cost the others theirs.
    `needs_logprobs`: its call does not ask for them. `limit`: the most tokens of an answer by the settings.
    """

    command: ScoreCommand
    own_counts: bool
    limit: int
    takes_evidence: bool = False
    needs_logprobs: bool = False

    def with_own(self, drawn: Drawn, own: Draw, model: str) -> Drawn:
        """Return the answers that the score rests on: the caller's own goes first where it is one of them."""
        drawn = self._as_limited(drawn)
        theirs = drawn.generation
        alike = model == theirs.model and not theirs.omitted
        told = own.total_logprob is not None or not self.takes_evidence
        if not (self.own_counts and alike and told):
            return drawn
        all_of_them = replace(theirs, draws=(own, *theirs.draws), requested=theirs.requested + 1)
        return replace(drawn, generation=all_of_them)

    def _as_limited(self, drawn: Drawn) -> Drawn:
        """Return answers drawn under a larger limit as drawn under the settings', where none is longer."""
        request, came = drawn.command.generation, drawn.generation
        assert request is not None
        told = [draw.num_tokens for draw in came.draws if draw.num_tokens is not None]
        every = len(told) == len(came.draws) + came.num_empty
        longest = max(told) if every else came.usage.completion_tokens  # all of them together are not shorter
        if not 0 < longest <= self.limit:
            return drawn
        sampling = replace(request.sampling, max_tokens=self.limit)
        return replace(drawn, command=replace(drawn.command, generation=replace(request, sampling=sampling)))


def plan_for(
    body: Mapping[str, Any],
    api: Api,
    serving: Serving,
    options: Options,
    takes_evidence: Callable[[ScoreCommand], bool],
) -> Plan:
    """Return what to draw beside a call of this body. Raises Unscorable.

    `takes_evidence`: whether a calibration may serve it that uses log-probabilities.
    """
    sampling = serving.messages_sampling if api == "chat" else serving.sampling
    wanted = options.num_samples
    # Two are drawn in any case: they alone may be a score, should the caller's own turn out to be another's.
    own_counts = wanted > MIN_SAMPLES and drawn_alike(body, sampling)
    model = body.get("model")
    request = GenerationRequest(
        num_samples=wanted - own_counts,
        sampling=replace(sampling, max_tokens=token_limit(body, sampling)),
        wire=wire_prompt(body, api),
        model=model if isinstance(model, str) and model else None,
    )
    command = ScoreCommand(
        request, calibration=options.calibration, target=options.target, arrived=time.perf_counter()
    )
    evidence = own_counts and takes_evidence(command)
    return Plan(command, own_counts, sampling.max_tokens, evidence, evidence and "logprobs" not in body)
