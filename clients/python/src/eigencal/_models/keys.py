"""Keys that open the service."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from eigencal._models.result import Result


class Key(Result):
    """A key as the service lists it: without the secret, which is told once."""

    id: str
    """Id of the key, by which it is revoked."""
    name: str
    """The name given to it."""
    scope: Literal["score", "admin"] | str
    """What it opens: scoring, or everything."""
    prefix: str
    """The beginning of the secret, by which a person tells keys apart."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it stops working; null: never."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""


class NewKey(Key):
    """A key that was just made, with its secret. It is told this once; `repr` leaves it out."""

    # Logs and tracebacks show reprs.
    key: str = Field(repr=False)
    """The secret: what a client takes as `key`."""
