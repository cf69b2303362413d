"""What the scoring routes share: the scorer, its defaults, and where scores are counted and stored."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

from service.scoring.metrics import Metrics
from service.scoring.score import Score, ScorePart, Serving
from service.scoring.score_cache import ScoreCache
from service.scoring.scorer import Scorer
from service.sharing import FairSemaphore


@dataclass(frozen=True, slots=True)
class ScoringService:
    """The parts behind the scoring routes.

    serving: the default way to draw answers. batch_items: limits the batch items in progress. Keys take
    turns.
    """

    scorer: Scorer
    serving: Serving
    kept: ScoreCache
    batch_items: FairSemaphore
    metrics: Metrics = field(default_factory=Metrics)

    def save(self, score: Score, owner: str, parts: Collection[ScorePart]) -> str:
        """Count a score, store it for `GET /scores/{id}`, and return it as JSON with its optional parts."""
        self.metrics.scored(score)
        content = score.json_text(parts)
        self.kept.save(score.id, owner, content)
        return content

    def respond(self, request: Request, score: Score, parts: Collection[ScorePart]) -> Response:
        """Count and store a score, and return the response."""
        content = self.save(score, request.state.caller, parts)
        return Response(content, headers=score.headers(), media_type="application/json")


async def service(request: Request) -> ScoringService:
    """Return the service of the request's application."""
    built: ScoringService = request.app.state.scoring
    return built


ScoringDep = Annotated[ScoringService, Depends(service)]
