"""Health, metrics and keys of the service."""

from datetime import datetime
from types import NoneType
from typing import Literal

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, awaited, format_path, without_none
from eigencal._results import NewKey
from eigencal.types import Health, Key, Ready


class Service(SyncAPIClient):
    """Calls about the service itself."""

    def ready(self, *, timeout_s: float | None = None) -> Ready:
        """Return the state of every part. Raises ServerError if prompts cannot be scored."""
        return self._send(Call("GET", "/readyz", Ready), timeout_s)

    def health(self, *, timeout_s: float | None = None) -> Health:
        """Return the version of the service, if its process is alive."""
        return self._send(Call("GET", "/healthz", Health), timeout_s)

    def metrics(self, *, timeout_s: float | None = None) -> str:
        """Return the metrics in Prometheus's text format."""
        return self._send(Call("GET", "/metrics", str), timeout_s)

    def keys(self, *, timeout_s: float | None = None) -> tuple[Key, ...]:
        """Return all keys, without their secrets. Needs the admin key."""
        return self._send(Call("GET", "/keys", tuple[Key, ...]), timeout_s)

    def create_key(
        self,
        name: str,
        scope: Literal["score", "admin"] = "score",
        *,
        expires_at: datetime | str | None = None,
        timeout_s: float | None = None,
    ) -> NewKey:
        """Create a key. Needs the admin key.

        Args:
            name: A name for people.
            scope: `score`: scoring only; `admin`: everything.
            expires_at: When the key expires (a string is ISO 8601); None: never.
            timeout_s: See `Client`.

        Returns:
            The key with its secret (`key`), which is never shown again.
        """
        until = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
        body = without_none({"name": name, "scope": scope, "expires_at": until})
        # A repeated call would create a key that nobody knows of.
        return self._send(Call("POST", "/keys", NewKey, body, is_idempotent=False), timeout_s)

    def revoke_key(self, key_id: str, *, timeout_s: float | None = None) -> None:
        """Revoke a key. Needs the admin key. Raises NotFoundError."""
        return self._send(Call("DELETE", format_path("/keys/{}", key_id), NoneType), timeout_s)


class AsyncService(AsyncAPIClient):
    """The asynchronous version of `Service`."""

    ready = awaited(Service.ready)
    health = awaited(Service.health)
    metrics = awaited(Service.metrics)
    keys = awaited(Service.keys)
    create_key = awaited(Service.create_key)
    revoke_key = awaited(Service.revoke_key)
