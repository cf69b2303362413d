"""GET /scores/{id}: a score for whoever comes later, or could not read the answer that it went with."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.deps import ServicesDep
from service.api.openapi import ok, recorded, responses
from service.errors import NotFound

router = APIRouter(tags=["score"], dependencies=[Depends(score_scope)])
_ID = re.compile(r"scr_[0-9A-Z]{26}\Z")
_SCORED = {
    name: example["response"] | {"status": "scored"} for name, example in recorded("examples.json").items()
}


class KeptScore(BaseModel):
    """A score as it was answered, and how far it is; further fields as of POST /score or of the answer."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Id of this score.")
    status: Literal["pending", "scored", "not_scored", "failed"] = Field(
        description="pending: ask again. scored: with everything that POST /score returned. not_scored, "
        "failed: `warning` says why."
    )


@router.get(
    "/scores/{score_id}",
    summary="A score by its id",
    responses={
        200: ok(
            KeptScore, {"pending": {"id": "scr_01K9ZD3QW40000000000000000", "status": "pending"}} | _SCORED
        ),
        **responses("not_found", *KEY_CODES, "store_unavailable", "internal"),
    },
    response_model=None,
    openapi_extra=BEARER,
)
async def get_score(
    request: Request, app: ServicesDep, score_id: Annotated[str, Path(description="Id of a score.")]
) -> dict[str, Any]:
    """Return what was answered under this id, from any replica, for as long as the settings keep it.

    An hour unless set otherwise, and the latest 10,000. Made under another key, it is not found.
    """
    # Refused by its form: a database may choke on characters that no id has.
    found = await app.kept.find(score_id, owner_of(request)) if _ID.match(score_id) else None
    if found is None:
        raise NotFound("No score has this id, it is no longer kept, or it was made under another key.")
    return {"status": "scored"} | found
