"""Dependencies of the routes that score: the services built in `app`."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from service.api.admission import Admission
from service.scoring.metrics import Metrics
from service.scoring.score import Serving
from service.scoring.score_cache import ScoreCache
from service.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class ScoringServices:
    """The use cases that the scoring routes call. `serving`: the default way to draw answers."""

    scorer: Scorer
    serving: Serving
    kept: ScoreCache
    admission: Admission
    metrics: Metrics = field(default_factory=Metrics)


async def services(request: Request) -> ScoringServices:
    """Return the services of the request's application."""
    built: ScoringServices = request.app.state.scoring
    return built


ScoringDep = Annotated[ScoringServices, Depends(services)]
