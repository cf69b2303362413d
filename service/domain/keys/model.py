"""A key that was made by the API: what is known of it, and how one is made."""

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from service.domain.ids import new_id

Scope = Literal["score", "admin"]
State = Literal["valid", "expired", "revoked"]

START = "eigencal_"  # by which people, and scanners for leaked secrets, know a key of ours
_RANDOM_BYTES = 32
_SHOWN = len(START) + 6
_LENGTH = len(START) + 43  # 32 bytes are 43 characters of base 64


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored.

    `digest`: SHA-256 of the key, 64 hex digits. Of a random key of 256 bits it gives nothing away, and needs
    no salt. `prefix`: the first characters of the key, which may be shown. Times are in UTC.
    """

    id: str
    name: str
    scope: Scope
    prefix: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def state(self, now: datetime) -> State:
        """Return whether it opens anything at this time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


def new_key(name: str, scope: Scope, expires_at: datetime | None, now: datetime) -> tuple[Key, str]:
    """Return a new key for the store, and the secret itself, which is kept nowhere."""
    secret = START + secrets.token_urlsafe(_RANDOM_BYTES)
    made = Key(new_id("key"), name, scope, prefix_of(secret), digest_of(secret), now, expires_at)
    return made, secret


def digest_of(secret: str) -> str:
    """Return what is stored of a key. Headers arrive as Latin-1."""
    return hashlib.sha256(secret.encode("latin-1", "replace")).hexdigest()


def prefix_of(secret: str) -> str:
    """Return the part of a key that may be shown."""
    return secret[:_SHOWN]


def may_be_ours(secret: str) -> bool:
    """Tell whether a text has the form of a key that was made here: nothing else is worth a query."""
    return secret.startswith(START) and len(secret) == _LENGTH
