"""Keys that open the service."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from eigencal._models.result import Result


class KeyWarning(Result):
    """What to know about having made a key."""

    code: str
    """scope_closed: it is the first key, and callers without one are now refused."""
    message: str
    """The same in words."""


class Key(Result):
    """A key, but for the key itself."""

    id: str
    """Id of the key."""
    name: str
    """The name given to it."""
    scope: Literal["score", "admin"] | str
    """What it opens."""
    prefix: str
    """Its first characters, by which to know it."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it ends; null: when it is revoked."""
    revoked_at: datetime | None
    """When it was revoked."""
    state: Literal["valid", "expired", "revoked"] | str
    """Whether it opens anything: only a valid one does."""


class NewKey(Key):
    """A key that was made now: the only answer that holds the key itself. `repr` leaves it out."""

    # Logs and tracebacks show reprs.
    key: str = Field(repr=False)
    """The key. It is shown this once and stored nowhere."""
    warnings: tuple[KeyWarning, ...]
    """What to know about having made it."""
