"""GET|POST /keys, DELETE /keys/{id}: the keys of the operators and of those who score."""

import logging
import re
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from service.api.http.auth import ADMIN_CODES, BEARER, Keys, admin_scope, keys_of
from service.api.http.bodies import BAD_BODY, read_json
from service.api.http.openapi import json_body, responses
from service.api.keys.schemas import KEY, SECRET, KeyOut, KeyRequest, KeyWarning, MadeKey, key_view
from service.domain.errors import InvalidRequest, NotFound
from service.domain.keys.model import Scope
from service.domain.keys.ring import KeyRing

log = logging.getLogger(__name__)
router = APIRouter(prefix="/keys", tags=["keys"], dependencies=[Depends(admin_scope)])

CODES = (*ADMIN_CODES, "internal")
CLOSED = {
    "score": "Scoring, the drop-in and /metrics need a key from now on, for good: without one it is 401.",
    "admin": "The admin routes need an admin key from now on, for good, on this machine, too.",
}
_ID = re.compile(r"key_[0-9A-Z]{26}\Z")
_LOCATION = {"Location": {"description": "Path of the key.", "schema": {"type": "string"}}}
_REQUEST = {name: KEY[name] for name in ("name", "scope", "expires_at")}
_MADE = KEY | {"key": SECRET, "warnings": [{"code": "scope_closed", "message": CLOSED["score"]}]}


async def _made(request: Request) -> KeyRing:
    ring = keys_of(request).made
    assert ring is not None, "these routes are part of an application that has a store"
    return ring


RingDep = Annotated[KeyRing, Depends(_made)]
KeysDep = Annotated[Keys, Depends(keys_of)]


@router.get(
    "",
    summary="All keys that were made",
    responses={200: {"content": {"application/json": {"example": [KEY]}}}, **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_keys(ring: RingDep) -> list[KeyOut]:
    """Return keys, latest first, revoked and expired ones, too; never a key itself."""
    return [KeyOut(**key_view(key, ring.now())) for key in await ring.list_all()]


@router.post(
    "",
    summary="Make a key",
    status_code=201,
    responses={
        201: {"content": {"application/json": {"example": _MADE}}, "headers": _LOCATION},
        **responses(*CODES, *BAD_BODY, "conflict"),
    },
    openapi_extra={**json_body("KeyRequest", {"for a year": _REQUEST}), **BEARER},
)
async def post_key(request: Request, response: Response, keys: KeysDep, ring: RingDep) -> MadeKey:
    """Make a key that works at once on every replica, and show it this once.

    The first key of a scope closes its routes to callers without one, also when it is revoked later. An admin
    key opens scoring, but does not close it.
    """
    body = await read_json(request, KeyRequest)
    if body.expires_at is not None and body.expires_at <= ring.now():
        said = "must be in the future"
        raise InvalidRequest(f"expires_at: {said}", [{"loc": ["body", "expires_at"], "msg": said}])
    was_closed = keys.closed(body.scope)
    made, secret = await ring.make(body.name, body.scope, body.expires_at)
    response.headers["Location"] = f"/keys/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    warnings = [] if was_closed else [_closing(body.scope)]
    return MadeKey(**key_view(made, ring.now()), key=secret, warnings=warnings)


@router.delete(
    "/{key_id}",
    summary="Revoke a key",
    status_code=204,
    responses=responses(*CODES, "not_found"),
    openapi_extra=BEARER,
)
async def delete_key(
    keys: KeysDep, ring: RingDep, key_id: Annotated[str, Path(description="Id of a key.")]
) -> None:
    """Revoke a key for good: here at once, on other replicas within seconds. Requests under way go on.

    One that was revoked before is 204, too.
    """
    # Refused by its form: a database may choke on characters that no id has.
    revoked = await ring.revoke(key_id) if _ID.match(key_id) else None
    if revoked is None:
        raise NotFound("No key has this id.")
    if not keys.admin and keys.closed("admin") and not ring.any_valid("admin"):
        log.warning("no admin key is valid now: nobody can make one unless EIGENCAL_ADMIN_KEY is set")


def _closing(scope: Scope) -> KeyWarning:
    log.warning("the first key of scope %s was made: its routes are closed to callers without one", scope)
    return KeyWarning(code="scope_closed", message=CLOSED[scope])
