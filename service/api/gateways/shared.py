"""What the routes of gateways share: the use cases, bodies that others define, what is told of a score."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict

from service.api.http.deps import Services
from service.api.routes.score_view import headers_of, view
from service.domain.gateways.guardrail import Guardrail
from service.domain.gateways.verifying import Verifier
from service.domain.scoring.model import Score


class GatewayModel(BaseModel):
    """Base of bodies that a gateway defines: what it adds with its next release must not fail its calls."""

    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


@dataclass(frozen=True, slots=True)
class Gateways:
    """The use cases of gateways and routers."""

    verifier: Verifier
    guardrail: Guardrail


async def gateways(request: Request) -> Gateways:
    """Return the use cases of the application that got the request."""
    found: Gateways = request.app.state.gateways
    return found


GatewaysDep = Annotated[Gateways, Depends(gateways)]


def told(app: Services, score: Score, owner: str) -> dict[str, str]:
    """Keep a score for `GET /scores/{id}`, and return its headers, with that id."""
    app.kept.keep(score.id, owner, view(score, ["modes"]).model_dump_json(exclude_unset=True))
    return {**headers_of(score), "X-Score-ID": score.id}
