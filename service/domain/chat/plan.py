"""What is drawn beside a call, and how its own answer counts among what is drawn."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.domain.chat.prompt import Api, drawn_alike, wire_prompt
from service.domain.models import Draw, GenerationRequest
from service.domain.scoring.enough import MIN_SAMPLES
from service.domain.scoring.judgement import Target
from service.domain.scoring.model import Drawn, ScoreCommand
from service.domain.serving import Serving


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller asks of the score beside its answer."""

    num_samples: int
    target: Target | None = None
    calibration: str = "active"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draw; `own_counts`: one answer less, since the caller's own is drawn like them."""

    command: ScoreCommand
    own_counts: bool

    def with_own(self, drawn: Drawn, own: Draw, model: str) -> Drawn:
        """Return the answers that the score rests on: the caller's own goes first where it is one of them."""
        if not self.own_counts or not _is_like(drawn, own, model):
            return drawn
        theirs = drawn.generation
        all_of_them = replace(theirs, draws=(own, *theirs.draws), requested=theirs.requested + 1)
        return replace(drawn, generation=all_of_them)


def plan_for(body: Mapping[str, Any], api: Api, serving: Serving, options: Options) -> Plan:
    """Return what to draw beside a call of this body. Raises Unscorable."""
    sampling = serving.messages_sampling if api == "chat" else serving.sampling
    wanted = options.num_samples
    # Two are drawn in any case: they alone may be a score, should the caller's own turn out to be another's.
    own_counts = wanted > MIN_SAMPLES and drawn_alike(body, sampling)
    model = body.get("model")
    request = GenerationRequest(
        num_samples=wanted - own_counts,
        sampling=sampling,
        wire=wire_prompt(body, api),
        model=model if isinstance(model, str) and model else None,
    )
    command = ScoreCommand(
        request, calibration=options.calibration, target=options.target, arrived=time.perf_counter()
    )
    return Plan(command, own_counts)


def _is_like(drawn: Drawn, own: Draw, model: str) -> bool:
    """Tell whether an answer is of the model that drew the others, in the same way, and tells as much."""
    theirs = drawn.generation
    told = own.total_logprob is not None or any(draw.total_logprob is None for draw in theirs.draws)
    return model == theirs.model and not theirs.omitted and told
