"""HTTP to an OpenAI-style POST /v1/embeddings server: retries, bounds, what its refusals mean."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import httpx
import numpy as np
import stamina
from numpy.typing import NDArray

from service.embedding.cache import VectorCache, Vectors, model_changed, unit_rows
from service.embedding.port import EMBEDDED, FAILED, Embedded, EmbedderIdentity, EmptyAnswers
from service.errors import EmbedderUnavailable
from service.remote import KEEPALIVE_S, TRY_AGAIN, SharedCheck, retry_after_s, tls

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


log = logging.getLogger(__name__)

CHECK_HOLDS_S = 5.0
CHECK_TIMEOUT_S = 10.0
CHECK_TEXT = "check"


class HttpEmbedder:
    """Texts to unit vectors by a server; what the server does with long texts is its own affair.

    `base_url` with or without /v1. Connect errors, 429, 502, 503 and 504 are tried again within `timeout_s`
    (a Retry-After is honoured), read timeouts and other refusals are not. Name, dimension and the model that
    the server reports are learned from the first answer: a server that is not up yet is no error at start.
    One that reports another model, or another dimension, has been swapped: vectors kept are forgotten, and
    the call that met it fails.

    `max_batch`: texts of a request. `max_queue`: calls at work before Overloaded; it bounds connections, too.
    `proxies_from_env`: go through the proxies that HTTP_PROXY and the like name.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        timeout_s: float = 30.0,
        cache_size: int = 20_000,
        max_batch: int = 64,
        max_queue: int = 256,
        empty_answers: EmptyAnswers = FAILED,
        proxies_from_env: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = EmbeddingsClient(
            base_url,
            model,
            api_key=api_key,
            timeout_s=timeout_s,
            proxies_from_env=proxies_from_env,
            transport=transport,
        )
        self._model = model
        self.empty_answers: EmptyAnswers = empty_answers
        self._is_ready = False
        self._max_batch = max_batch
        self._identity: EmbedderIdentity | None = None
        silent = EmbedderUnavailable("The embedding server did not answer in time.")
        self._check = SharedCheck(self._try, longest_s=min(timeout_s, CHECK_TIMEOUT_S), too_late=silent)
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=max_queue)
        self._answered_at = float("-inf")

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (the model as the server reports it), dimension, "float32".

        Raises EmbedderUnavailable until the server has answered once.
        """
        if self._identity is None:
            raise EmbedderUnavailable("The embedding server has not answered yet.")
        return self._identity

    async def start(self) -> None:
        """Open the connection pool and try the server; a server that does not answer is tried again later."""
        if self._client.is_open:
            return
        self._client.open()
        try:
            await self._try()
        except EmbedderUnavailable:
            return

    async def stop(self) -> None:
        """Close the connections; idempotent."""
        await self._check.stop()
        await self._client.close()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return unit rows, shape (len(texts), dimension). Raises EmbedderUnavailable, Overloaded."""
        if not texts:
            return Embedded(np.empty((0, self.identity.dimension), dtype=np.float32), self.identity)
        rows = await self._vectors.rows(texts)
        return Embedded(rows, self.identity)

    async def check(self) -> None:
        """Embed a word unless the server has just answered; raise EmbedderUnavailable when it does not.

        Also the empty text where empty answers are embedded: a server that refuses it is not ready. One check
        at a time, whose finding holds for a second: whoever asks needs no key.
        """
        silent = time.monotonic() - self._answered_at > CHECK_HOLDS_S
        if not self._client.is_open or silent or not self._is_ready:
            await self._check()

    async def _try(self) -> None:
        await self._ask([CHECK_TEXT, ""] if self.empty_answers == EMBEDDED else [CHECK_TEXT])
        self._is_ready = True  # an answer to other texts does not show that the empty one is taken

    async def _compute(self, texts: list[str]) -> Vectors:
        starts = range(0, len(texts), self._max_batch)
        return np.concatenate([await self._ask(texts[i : i + self._max_batch]) for i in starts])

    async def _ask(self, texts: list[str]) -> Vectors:
        raw, revision = await self._client.embed(texts)
        rows = unit_rows(raw, len(texts))
        self._answered_at = time.monotonic()
        now = EmbedderIdentity(self._model, revision, rows.shape[1], "float32", self.empty_answers)
        before, self._identity = self._identity, now
        if before is not None and now != before:
            log.warning("the embedding server has changed its model; it reports %s", revision)
            self._vectors.clear()
            raise model_changed()
        return rows
