"""The service itself: its parts, its keys."""

from datetime import datetime
from typing import Literal

from eigencal._base_client import (
    AsyncAPIClient,
    Call,
    SyncAPIClient,
    format_path,
    json_parser,
    parse_nothing,
    parse_text,
    without_none,
)
from eigencal._models import Health, Key, Ready
from eigencal._results import NewKey

_parse_new_key = json_parser(NewKey)

_READY: Call[Ready] = Call("GET", "/readyz", json_parser(Ready))
_HEALTH: Call[Health] = Call("GET", "/healthz", json_parser(Health))
_METRICS: Call[str] = Call("GET", "/metrics", parse_text)
_KEYS: Call[tuple[Key, ...]] = Call("GET", "/keys", json_parser(tuple[Key, ...]))


def _create_key_call(name: str, scope: str, expires_at: datetime | str | None) -> Call[NewKey]:
    until = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
    body = without_none({"name": name, "scope": scope, "expires_at": until})
    # Made twice, there would be a key that nobody knows of.
    return Call("POST", "/keys", _parse_new_key, body, is_idempotent=False)


def _revoke_key_call(key_id: str) -> Call[None]:
    return Call("DELETE", format_path("/keys/{id}", id=key_id), parse_nothing)


class Service(SyncAPIClient):
    """Calls about the service itself."""

    def ready(self, *, timeout_s: float | None = None) -> Ready:
        """Return the state of every part. Raises ServerError, with a code, where prompts cannot be scored."""
        return self._send(_READY, timeout_s)

    def health(self, *, timeout_s: float | None = None) -> Health:
        """Return the version of the service: its process answers."""
        return self._send(_HEALTH, timeout_s)

    def metrics(self, *, timeout_s: float | None = None) -> str:
        """Return the metrics as Prometheus reads them."""
        return self._send(_METRICS, timeout_s)

    def keys(self, *, timeout_s: float | None = None) -> tuple[Key, ...]:
        """Return all keys, without their secrets. Needs the admin key."""
        return self._send(_KEYS, timeout_s)

    def create_key(
        self,
        name: str,
        scope: Literal["score", "admin"] = "score",
        *,
        expires_at: datetime | str | None = None,
        timeout_s: float | None = None,
    ) -> NewKey:
        """Make a key. Needs the admin key.

        Args:
            name: A name for people.
            scope: What it opens: scoring, or everything.
            expires_at: When it stops working (ISO 8601 as a text); None: never.
            timeout_s: See `Client`.

        Returns:
            The key with its secret (`key`), which the service tells this once.
        """
        return self._send(_create_key_call(name, scope, expires_at), timeout_s)

    def revoke_key(self, key_id: str, *, timeout_s: float | None = None) -> None:
        """Revoke a key: it opens nothing any more. Needs the admin key. Raises NotFoundError."""
        self._send(_revoke_key_call(key_id), timeout_s)


class AsyncService(AsyncAPIClient):
    """Calls about the service itself."""

    async def ready(self, *, timeout_s: float | None = None) -> Ready:
        """Do as `Client.ready` does, awaited."""
        return await self._send(_READY, timeout_s)

    async def health(self, *, timeout_s: float | None = None) -> Health:
        """Do as `Client.health` does, awaited."""
        return await self._send(_HEALTH, timeout_s)

    async def metrics(self, *, timeout_s: float | None = None) -> str:
        """Do as `Client.metrics` does, awaited."""
        return await self._send(_METRICS, timeout_s)

    async def keys(self, *, timeout_s: float | None = None) -> tuple[Key, ...]:
        """Do as `Client.keys` does, awaited."""
        return await self._send(_KEYS, timeout_s)

    async def create_key(
        self,
        name: str,
        scope: Literal["score", "admin"] = "score",
        *,
        expires_at: datetime | str | None = None,
        timeout_s: float | None = None,
    ) -> NewKey:
        """Do as `Client.create_key` does, awaited."""
        return await self._send(_create_key_call(name, scope, expires_at), timeout_s)

    async def revoke_key(self, key_id: str, *, timeout_s: float | None = None) -> None:
        """Do as `Client.revoke_key` does, awaited."""
        await self._send(_revoke_key_call(key_id), timeout_s)
