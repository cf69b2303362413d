"""Calls about keys."""

from datetime import datetime

from eigencal._calls.call import Call, nothing, path, reader, without_none
from eigencal._calls.repeat import Repeat
from eigencal._models.keys import Key, NewKey

_KEYS = reader(tuple[Key, ...])
_NEW = reader(NewKey)


def keys() -> Call[tuple[Key, ...]]:
    """GET /keys."""
    return Call("GET", "/keys", _KEYS)


def create_key(name: str, scope: str, expires_at: datetime | str | None) -> Call[NewKey]:
    """POST /keys: made again only if nothing saw it, or there would be a key that nobody knows of."""
    until = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
    body = without_none({"name": name, "scope": scope, "expires_at": until})
    return Call("POST", "/keys", _NEW, body, repeat=Repeat.UNSEEN)


def revoke_key(key_id: str) -> Call[None]:
    """DELETE /keys/{id}."""
    return Call("DELETE", path("/keys/{id}", id=key_id), nothing)
