"""The service itself: its parts, its keys."""

from datetime import datetime
from typing import Literal

from eigencal._async.sending import AsyncSender
from eigencal._calls import keys as key_calls
from eigencal._calls import service as calls
from eigencal._models.keys import Key, NewKey
from eigencal._models.service import Health, Ready, Root


class AsyncOperating(AsyncSender):
    """Calls about the service itself."""

    async def ready(self, *, timeout_s: float | None = None) -> Ready:
        """Do as `Client.ready` does, awaited."""
        return await self._send(calls.ready(), timeout_s)

    async def health(self, *, timeout_s: float | None = None) -> Health:
        """Do as `Client.health` does, awaited."""
        return await self._send(calls.health(), timeout_s)

    async def live(self, *, timeout_s: float | None = None) -> Health:
        """Do as `Client.live` does, awaited."""
        return await self._send(calls.live(), timeout_s)

    async def root(self, *, timeout_s: float | None = None) -> Root:
        """Do as `Client.root` does, awaited."""
        return await self._send(calls.root(), timeout_s)

    async def metrics(self, *, timeout_s: float | None = None) -> str:
        """Do as `Client.metrics` does, awaited."""
        return await self._send(calls.metrics(), timeout_s)

    async def keys(self, *, timeout_s: float | None = None) -> tuple[Key, ...]:
        """Do as `Client.keys` does, awaited."""
        return await self._send(key_calls.keys(), timeout_s)

    async def create_key(
        self,
        name: str,
        scope: Literal["score", "admin"] = "score",
        *,
        expires_at: datetime | str | None = None,
        timeout_s: float | None = None,
    ) -> NewKey:
        """Do as `Client.create_key` does, awaited."""
        return await self._send(key_calls.create_key(name, scope, expires_at), timeout_s)

    async def revoke_key(self, key_id: str, *, timeout_s: float | None = None) -> None:
        """Do as `Client.revoke_key` does, awaited."""
        await self._send(key_calls.revoke_key(key_id), timeout_s)
