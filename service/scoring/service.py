"""One door to scores for `/score`, `/verify` and the guardrail; batches use its counting.

It admits a request, ends it if the caller disconnects, counts it, and stores its score.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from service.api.admission import Admission, Kind
from service.api.auth import owner_of
from service.api.bodies import read_json, while_connected
from service.scoring.metrics import Metrics
from service.scoring.score import Score, ScorePart, Serving
from service.scoring.score_cache import ScoreCache
from service.scoring.scorer import Scorer

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ScoringService:
    """The use case behind the scoring routes. `serving`: the default way to draw answers."""

    scorer: Scorer
    serving: Serving
    kept: ScoreCache
    admission: Admission
    metrics: Metrics = field(default_factory=Metrics)

    async def read(self, request: Request, kind: Kind, model: type[Body]) -> Body:
        """Return the body of a request. Raises Overloaded, before the body is read, if there is no room."""
        self.admission.refuse_if_full(kind)
        return await read_json(request, model)

    async def counted(self, work: Callable[[], Awaitable[Score]]) -> Score:
        """Return the score from `work`, counted in the metrics, as is its error."""
        with self.metrics.under_way():
            score = await work()
        self.metrics.scored(score)
        return score

    async def serve(self, request: Request, kind: Kind, work: Callable[[], Awaitable[Score]]) -> Score | None:
        """Return the counted score from `work`, or None if the caller disconnects. Raises Overloaded."""
        with self.admission.one(kind):
            return await while_connected(request, self.counted(work))

    def save(self, request: Request, score: Score, parts: Collection[ScorePart]) -> str:
        """Store a score with optional parts for `GET /scores/{id}`, and return it as JSON."""
        content = score.json_text(parts)
        self.kept.save(score.id, owner_of(request), content)
        return content


async def service(request: Request) -> ScoringService:
    """Return the service of the request's application."""
    built: ScoringService = request.app.state.scoring
    return built


ScoringDep = Annotated[ScoringService, Depends(service)]
