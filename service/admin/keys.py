"""GET, POST and DELETE /keys."""

import logging
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from pydantic import AwareDatetime, BaseModel, Field, field_validator
from starlette.responses import Response

from service.errors import InvalidRequest, NotFound
from service.http.bodies import BAD_BODY, RequestModel
from service.http.keys import KeysDep
from service.http.openapi import BEARER, KEY_CODES, responses
from service.store.keys import Key, Scope, State

# Recorded from a service that no longer exists; the key is not valid anywhere.
KEY: dict[str, Any] = {
    "id": "key_01M812WMPTKXCAR8GS80VGQ6Y5",
    "name": "nightly evaluation",
    "scope": "score",
    "prefix": "eigencal_UIrBIy",
    "created_at": "2026-11-22T07:35:20.026694Z",
    "expires_at": "2027-11-22T00:00:00Z",
    "revoked_at": None,
    "state": "valid",
}
SECRET = "eigencal_UIrBIy7Ax9c5tAVwfIcNWyLHqPSlFxseKSJU4EIELjU"  # noqa: S105  of that service


class KeyRequest(RequestModel):
    """A key to create."""

    name: str = Field(
        min_length=1,
        max_length=200,
        description="Name of the key's user, for display. It need not be unique.",
    )
    scope: Scope = Field(description="score: the scoring routes. admin: all routes.")
    expires_at: AwareDatetime | None = Field(
        None,
        description="Expiry time, in the future and with a time zone. Left out: the key is valid until "
        "it is revoked.",
    )

    @field_validator("expires_at", mode="before")
    @classmethod
    def in_utc(cls, value: object) -> object:
        """Parse a time from text. Pydantic would also accept a number, as seconds since 1970."""
        if not isinstance(value, str):
            return value
        try:
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time
        except (ValueError, OverflowError):  # overflow: the year is 1 or 9999, and out of range in UTC
            raise ValueError("is not a time in ISO 8601, such as 2030-01-31T12:00:00Z") from None


class KeyOut(BaseModel):
    """A key without its secret."""

    id: str = Field(description="Id of the key.")
    name: str = Field(description="Name of the key.")
    scope: Scope = Field(description="Routes that the key opens: `score` or `admin`.")
    prefix: str = Field(description="First characters of the key, to recognise it.")
    created_at: datetime = Field(description="Time of creation.")
    expires_at: datetime | None = Field(description="Expiry time. Null: valid until it is revoked.")
    revoked_at: datetime | None = Field(description="Time of revocation. Null if it is not revoked.")
    state: State = Field(description="State of the key. Only a valid key opens routes.")


class KeyWarning(BaseModel):
    """A warning about a created key."""

    code: str = Field(
        description="scope_closed: this is the first key of its scope. Callers without a key are now refused."
    )
    message: str = Field(description="Explanation in plain English.")


class MadeKey(KeyOut):
    """A new key. Only this response contains the key itself."""

    key: str = Field(description="The key. It is shown only once and not stored.")
    warnings: list[KeyWarning] = Field(description="Warnings about the created key.")


def key_view(key: Key, now: datetime) -> dict[str, Any]:
    """Return the fields of a key that any admin key may see."""
    fields = {name: getattr(key, name) for name in KeyOut.model_fields if name != "state"}
    return fields | {"state": key.state(now)}


# GET|POST /keys, DELETE /keys/{id}.

log = logging.getLogger(__name__)
router = APIRouter(prefix="/keys", tags=["keys"])

CODES = (*KEY_CODES, "internal")
CLOSED = {
    "score": "Scoring, the drop-in and /metrics need a key from now on, permanently. Requests without a key "
    "get 401.",
    "admin": "The admin routes need an admin key from now on, permanently, also on this machine.",
}
_ID = re.compile(r"key_[0-9A-Z]{26}\Z")
_LOCATION = {"Location": {"description": "Path of the key.", "schema": {"type": "string"}}}
_REQUEST = {name: KEY[name] for name in ("name", "scope", "expires_at")}
_MADE = KEY | {"key": SECRET, "warnings": [{"code": "scope_closed", "message": CLOSED["score"]}]}


@router.get(
    "",
    summary="List all keys",
    responses={200: {"content": {"application/json": {"example": [KEY]}}}, **responses(*CODES)},
    openapi_extra=BEARER,
)
async def get_keys(keys: KeysDep) -> list[KeyOut]:
    """Return all keys without their secrets, latest first, including revoked and expired ones."""
    return [KeyOut(**key_view(key, keys.now())) for key in await keys.store.list_all()]


@router.post(
    "",
    summary="Create a key",
    status_code=201,
    responses={
        201: {"content": {"application/json": {"example": _MADE}}, "headers": _LOCATION},
        **responses(*CODES, *BAD_BODY),
    },
    openapi_extra=BEARER,
)
async def post_key(
    response: Response,
    keys: KeysDep,
    body: Annotated[KeyRequest, Body(openapi_examples={"for a year": {"value": _REQUEST}})],
) -> MadeKey:
    """Create a key that works immediately on every replica. The key is shown only in this response.

    The first key of a scope closes the scope's routes to callers without a key, permanently: also if the key
    is revoked later. An admin key also opens scoring, but does not close it.
    """
    if body.expires_at is not None and body.expires_at <= keys.now():
        msg = "must be in the future"
        raise InvalidRequest(f"expires_at: {msg}", [{"loc": ["body", "expires_at"], "msg": msg}])
    was_closed = keys.closed(body.scope)
    made, secret = await keys.make(body.name, body.scope, body.expires_at)
    response.headers["Location"] = f"/keys/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    warnings = []
    if not was_closed:
        log.warning("the first key of scope %s was made: it is closed to callers without one", body.scope)
        warnings = [KeyWarning(code="scope_closed", message=CLOSED[body.scope])]
    return MadeKey(**key_view(made, keys.now()), key=secret, warnings=warnings)


@router.delete(
    "/{key_id}",
    summary="Revoke a key",
    status_code=204,
    responses=responses(*CODES, "not_found"),
    openapi_extra=BEARER,
)
async def delete_key(keys: KeysDep, key_id: Annotated[str, Path(description="Id of a key.")]) -> None:
    """Revoke a key permanently: on this replica at once, on other replicas within seconds.

    Requests in progress continue. Revoking a revoked key also returns 204.
    """
    # Refused by its form: a database may fail on characters that no id has.
    revoked = await keys.revoke(key_id) if _ID.match(key_id) else None
    if revoked is None:
        raise NotFound("No key has this id.")
