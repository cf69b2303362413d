"""One door to scores for `/score`, batches, `/verify` and the drop-in.

It admits a request, ends it if the caller disconnects, counts it, and stores its score.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

from service.api.admission import Admission, Kind
from service.api.auth import owner_of
from service.api.bodies import CLIENT_CLOSED_REQUEST, while_connected
from service.scoring.metrics import Metrics
from service.scoring.score import Score, ScorePart, Serving
from service.scoring.score_cache import ScoreCache
from service.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class ScoringService:
    """The use case behind the scoring routes. `serving`: the default way to draw answers."""

    scorer: Scorer
    serving: Serving
    kept: ScoreCache
    admission: Admission
    metrics: Metrics = field(default_factory=Metrics)

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

    def respond(self, request: Request, score: Score | None, parts: Collection[ScorePart]) -> Response:
        """Store a score and return the response. A score of None means that the caller disconnected."""
        if score is None:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        content = self.save(score, owner_of(request), parts)
        return Response(content, headers=score.headers(), media_type="application/json")

    def save(self, score: Score, owner: str, parts: Collection[ScorePart]) -> str:
        """Store a score with optional parts for `GET /scores/{id}`, and return it as JSON."""
        content = score.json_text(parts)
        self.kept.save(score.id, owner, content)
        return content


async def service(request: Request) -> ScoringService:
    """Return the service of the request's application."""
    built: ScoringService = request.app.state.scoring
    return built


ScoringDep = Annotated[ScoringService, Depends(service)]


KINDS: Mapping[str, Kind] = {
    "/score": "score",
    "/score/batch": "batch",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/verify": "gateway",
}


async def has_room(request: Request) -> None:
    """Raise Overloaded if there is no room for the request. Called before its body is read."""
    if kind := KINDS.get(request.scope["route"].path):
        (await service(request)).admission.refuse_if_full(kind)
