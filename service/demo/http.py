"""The demonstration's way to the service: JSON in and out, refusals in the service's own words."""

from types import TracebackType
from typing import Any, Self

import httpx

from service.demo.background import DemoError

TIMEOUT_S = 300


class Http:
    """A client of one service. Calls raise DemoError when refused, httpx.TransportError when unanswered."""

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # trust_env: a proxy of the environment is not the way to this machine.
        self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON at a path."""
        return _body(self._client.get(path, headers={"Accept": "application/json"}))

    def post(self, path: str, **sent: Any) -> dict[str, Any]:
        """Post what httpx takes (json, data, files, headers) and return the JSON answered."""
        return _body(self._client.post(path, **sent))


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = response.text[:200]
    raise DemoError(f"The service answered {response.status_code}: {said}")
