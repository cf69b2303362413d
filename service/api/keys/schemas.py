"""Keys on the wire."""

from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field, field_validator

from service.api.http.bodies import RequestModel
from service.domain.keys.model import Key, Scope, State

# As a service that is gone answered: the key opens nothing.
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
    """A key to be made."""

    name: str = Field(
        min_length=1, max_length=200, description="Who uses it, for people; need not be unique."
    )
    scope: Scope = Field(description="score: the scoring routes. admin: these and all others.")
    expires_at: AwareDatetime | None = Field(
        None, description="When it ends: a time to come, with its zone. Without, when it is revoked."
    )

    @field_validator("expires_at", mode="before")
    @classmethod
    def as_iso_8601(cls, value: object) -> object:
        """Read a time as it is written: never a number, which pydantic would take for seconds since 1970."""
        try:
            return datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError("is no time in ISO 8601, such as 2030-01-31T12:00:00Z") from None

    @field_validator("expires_at")
    @classmethod
    def in_utc(cls, value: datetime | None) -> datetime | None:
        """Return the time in UTC."""
        try:
            return None if value is None else value.astimezone(UTC)
        except OverflowError:  # in its zone the year is 1 or 9999, in UTC it is none
            raise ValueError("is no time in UTC") from None


class KeyOut(BaseModel):
    """A key, but for the key itself."""

    id: str = Field(description="Id of the key.")
    name: str = Field(description="The name given to it.")
    scope: Scope = Field(description="What it opens.")
    prefix: str = Field(description="Its first characters, by which to know it.")
    created_at: datetime = Field(description="When it was made.")
    expires_at: datetime | None = Field(description="When it ends; null: when it is revoked.")
    revoked_at: datetime | None = Field(description="When it was revoked.")
    state: State = Field(description="Whether it opens anything: only a valid one does.")


class KeyWarning(BaseModel):
    """What to know about having made a key."""

    code: str = Field(
        description="scope_closed: it is the first key, and callers without one are now refused."
    )
    message: str = Field(description="The same in words.")


class MadeKey(KeyOut):
    """A key that was made now: the only answer that holds the key itself."""

    key: str = Field(description="The key. It is shown this once and stored nowhere.")
    warnings: list[KeyWarning] = Field(description="What to know about having made it.")


def key_view(key: Key, now: datetime) -> dict[str, Any]:
    """Return the fields of a key that everybody with an admin key may see."""
    fields = {name: getattr(key, name) for name in KeyOut.model_fields if name != "state"}
    return fields | {"state": key.state(now)}
