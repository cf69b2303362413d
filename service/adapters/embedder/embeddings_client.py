"""HTTP to an OpenAI-style POST /v1/embeddings server: retries, bounds, what its refusals mean."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

import httpx
import numpy as np
import stamina
from numpy.typing import NDArray

from service.adapters.http_clients import KEEPALIVE_S, TRY_AGAIN, retry_after_s, tls
from service.domain.errors import EmbedderUnavailable

ATTEMPTS = 4
LONGEST_RETRY_AFTER_S = 30.0
ANY_BYTES = 2**20  # around the vectors
VECTOR_BYTES = 16_384 * 25  # so many numbers, each written in full
PIECE_BYTES = 2**16


class EmbeddingsClient:
    """One server. Connect errors, 429, 502, 503 and 504 are tried again within `timeout_s`, no others."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str,
        timeout_s: float,
        proxies_from_env: bool,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("The embedding server's URL must start with http:// or https://.")
        root = base_url.rstrip("/").removesuffix("/v1")
        self._url = f"{root}/v1/embeddings"
        self._model = model
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._proxies_from_env = proxies_from_env
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the connection pool is open."""
        return self._client is not None

    def open(self) -> None:
        """Open the connection pool; within the event loop."""
        self._client = httpx.AsyncClient(
            headers=self._headers,
            timeout=httpx.Timeout(self._timeout_s, pool=None),
            # No bound of the pool's own: calls cancelled while they connect would use it up for ever.
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            transport=self._transport,
            trust_env=self._proxies_from_env,
            verify=tls(),
        )

    async def close(self) -> None:
        """Close the connections; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def embed(self, texts: list[str]) -> tuple[NDArray[np.float64], str]:
        """Return the vectors as they came, one row per text, and the model that the server reports.

        Raises EmbedderUnavailable.
        """
        payload = _payload(await self._post(texts))
        return _matrix(payload, len(texts)), _reported(payload, self._model)

    async def _post(self, texts: list[str]) -> bytes:
        if self._client is None:
            raise EmbedderUnavailable("The embedder has been stopped.")
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx's own is for the next byte
                async for attempt in stamina.retry_context(
                    on=_wait_before_retry, attempts=ATTEMPTS, timeout=self._timeout_s
                ):
                    with attempt:
                        return await self._answer(body, most_bytes(len(texts)))
        except httpx.HTTPStatusError as error:
            raise _refusal(error.response) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise EmbedderUnavailable("The embedding server did not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            # RuntimeError: httpx says so when the client is closed during the call.
            raise EmbedderUnavailable("The embedding server cannot be reached.") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _answer(self, body: dict[str, Any], most: int) -> bytes:
        """Return the body of an answer, read piece by piece: a server may send what it likes."""
        if self._client is None:
            raise EmbedderUnavailable("The embedder has been stopped.")
        async with self._client.stream("POST", self._url, json=body) as response:
            response.raise_for_status()
            pieces: list[bytes] = []
            async for piece in response.aiter_bytes(PIECE_BYTES):
                pieces.append(piece)
                most -= len(piece)
                if most < 0:
                    raise EmbedderUnavailable("The embedding server's answer is longer than vectors can be.")
        return b"".join(pieces)


def _wait_before_retry(error: Exception) -> bool | float:
    """Return seconds to wait, True for the default back-off, or False for no further attempt."""
    if isinstance(error, httpx.HTTPStatusError):
        if error.response.status_code not in TRY_AGAIN:
            return False
        return _wait_s(error.response) or True
    # An idle connection that the server has closed shows as the last two; embedding twice does no harm.
    return isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.RemoteProtocolError | httpx.ReadError
    )


def _wait_s(response: httpx.Response) -> float | None:
    wait_s = retry_after_s(response)
    return None if wait_s is None else min(wait_s, LONGEST_RETRY_AFTER_S)


def _refusal(response: httpx.Response) -> EmbedderUnavailable:
    status = response.status_code
    if status in TRY_AGAIN:
        detail = f"The embedding server refuses work for now (status {status})."
        return EmbedderUnavailable(detail, retry_after_s=_wait_s(response))
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return EmbedderUnavailable(f"The embedding server refused the service's key (status {status}).")
    return EmbedderUnavailable(f"The embedding server refused the texts (status {status}).")


def most_bytes(texts: int) -> int:
    """Return how many bytes the vectors of so many texts may take: 16,384 numbers each, written in full."""
    return ANY_BYTES + texts * VECTOR_BYTES


def _payload(content: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:  # a thousand brackets are JSON to Python
        raise _no_embedding() from error
    if not isinstance(payload, dict):
        raise _no_embedding()
    return payload


def _matrix(payload: dict[str, Any], count: int) -> NDArray[np.float64]:
    """Return the vectors in the order of the texts, which is that of `index`."""
    try:
        if not isinstance(payload["data"], list) or len(payload["data"]) != count:
            raise _no_embedding()
        # By index: a server that spreads texts over workers may list them as they end.
        items = sorted(payload["data"], key=lambda item: item["index"])
        if [item["index"] for item in items] != list(range(count)):
            raise _no_embedding()
        return np.array([item["embedding"] for item in items], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _no_embedding() from error


def _reported(payload: dict[str, Any], asked: str) -> str:
    reported = payload.get("model")
    return reported if isinstance(reported, str) and reported else asked


def _no_embedding() -> EmbedderUnavailable:
    return EmbedderUnavailable("The embedding server answered with something that is no embedding.")
