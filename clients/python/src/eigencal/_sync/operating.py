"""The service itself: its parts, its keys."""

from datetime import datetime
from typing import Literal

from eigencal._calls import keys as key_calls
from eigencal._calls import service as calls
from eigencal._models.keys import Key, NewKey
from eigencal._models.service import Health, Ready, Root
from eigencal._sync.sending import Sender


class Operating(Sender):
    """Calls about the service itself."""

    def ready(self, *, timeout_s: float | None = None) -> Ready:
        """Return the state of every part, if prompts can be scored.

        Raises:
            Unavailable: They cannot; the error's class says which part is at fault.
        """
        return self._send(calls.ready(), timeout_s)

    def health(self, *, timeout_s: float | None = None) -> Health:
        """Return the version of the service: its process answers."""
        return self._send(calls.health(), timeout_s)

    def live(self, *, timeout_s: float | None = None) -> Health:
        """Return the same as `health`, by the path that orchestrators know (`/healthz`)."""
        return self._send(calls.live(), timeout_s)

    def root(self, *, timeout_s: float | None = None) -> Root:
        """Return where everything is: paths by what is there."""
        return self._send(calls.root(), timeout_s)

    def metrics(self, *, timeout_s: float | None = None) -> str:
        """Return the metrics as Prometheus reads them."""
        return self._send(calls.metrics(), timeout_s)

    def keys(self, *, timeout_s: float | None = None) -> tuple[Key, ...]:
        """Return all keys, without their secrets. Needs the admin key."""
        return self._send(key_calls.keys(), timeout_s)

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
            timeout_s: Seconds that the call may take in all; None: those of the client.

        Returns:
            The key with its secret (`key`), which the service tells this once.
        """
        return self._send(key_calls.create_key(name, scope, expires_at), timeout_s)

    def revoke_key(self, key_id: str, *, timeout_s: float | None = None) -> None:
        """Revoke a key: it opens nothing any more. Needs the admin key. Raises NotFound."""
        self._send(key_calls.revoke_key(key_id), timeout_s)
