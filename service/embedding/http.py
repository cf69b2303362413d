"""The embedder behind an OpenAI-style server: POST /embeddings."""

import asyncio
import json
import logging
from collections.abc import Sequence

import httpx2
import numpy as np
from numpy.typing import NDArray

from service.embedding.port import (
    PAPER,
    Embedded,
    EmbedderIdentity,
    Kernel,
    VectorCache,
    Vectors,
    unit_rows,
)
from service.errors import EmbedderRefusal, EmbedderUnavailable
from service.llm.connection import (
    TRY_AGAIN,
    Connections,
    HealthProbe,
    api_base,
    before_retry,
    endpoint,
    error_message,
    is_out_of_credit,
    retry_after_s,
)

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
MAX_QUEUE = 256  # concurrent calls before Overloaded; also bounds connections
MAX_BATCH = 32  # texts in a request; TEI's default limit
CHECK_TEXT = "check"
REFUSING_TEXTS = frozenset({400, 413, 422})
MAX_MESSAGE_CHARS = 500


class HttpEmbedder:
    """Embeds texts as unit vectors through an HTTP server.

    base_url: with or without /v1.

    Connect errors, broken connections and the status codes in `TRY_AGAIN` are retried within `TIMEOUT_S`,
    after the wait in Retry-After. Read timeouts and other refusals are not retried. The dimension and the
    reported model are taken from the server's first answer, so the server may start after the service. If a
    later answer reports another model or dimension, the call fails and the cached vectors are dropped.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        cache_size: int = 20_000,
        kernel: Kernel = PAPER,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        base = api_base(base_url, "EIGENCAL_EMBEDDER_URL")
        self._url = endpoint(base, "/embeddings")
        self._model = model
        self.kernel: Kernel = kernel
        self._identity: EmbedderIdentity | None = None
        self._cache_size = cache_size
        self._batch_size = MAX_BATCH
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=MAX_QUEUE)
        self._check = HealthProbe(lambda: self._ask([CHECK_TEXT]))
        self._connections = Connections(base, api_key=api_key, transport=transport)

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the identity. `revision` is the model that the server reports; `precision` is "float32".

        Raises EmbedderUnavailable until the server has answered once.
        """
        if self._identity is None:
            raise EmbedderUnavailable("The embedding server has not answered yet.")
        return self._identity

    @property
    def num_queued(self) -> int:
        """Return the number of calls that are being embedded or waiting."""
        return self._vectors.num_queued

    async def start(self) -> None:
        """Try to reach the server. An unavailable server is no error: later calls try again."""
        try:
            await self.check()
        except EmbedderUnavailable:
            return

    async def stop(self) -> None:
        """Close the connections; idempotent."""
        await self._connections.close()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return unit rows, shape (len(texts), dimension). Raises EmbedderUnavailable, Overloaded."""
        if not texts:
            return Embedded(np.empty((0, self.identity.dimension), dtype=np.float32), self.identity)
        vectors = self._vectors
        rows = await vectors.rows(texts)
        if vectors is not self._vectors:
            raise _model_changed()
        return Embedded(rows, self.identity)

    async def check(self) -> None:
        """Embed a word, at most once a second. Raises EmbedderUnavailable if the server fails."""
        await self._check()

    async def _compute(self, texts: list[str]) -> Vectors:
        rows, begin = list[Vectors](), 0
        while begin < len(texts):
            batch = texts[begin : begin + self._batch_size]
            rows.append(await self._in_halves(batch))
            begin += len(batch)
        return np.concatenate(rows)

    async def _in_halves(self, texts: list[str]) -> Vectors:
        """Return the vectors. A refused batch is sent in halves, and later batches are as small."""
        try:
            return await self._ask(texts)
        except EmbedderRefusal as refusal:
            half = len(texts) // 2
            if not half or refusal.server_status not in REFUSING_TEXTS:
                raise
        rows = np.concatenate([await self._in_halves(texts[:half]), await self._in_halves(texts[half:])])
        self._batch_size = min(self._batch_size, len(texts) - half)
        return rows

    async def _ask(self, texts: list[str]) -> Vectors:
        raw, revision = _parse(await self._post(texts), len(texts))
        rows = unit_rows(raw, len(texts))
        now = EmbedderIdentity(self._model, revision or self._model, rows.shape[1], "float32", self.kernel)
        before, self._identity = self._identity, now
        if before is not None and now != before:
            log.warning("the embedding server has changed its model; it reports %s", revision)
            self._vectors = VectorCache(self._compute, max_entries=self._cache_size, max_queue=MAX_QUEUE)
            raise _model_changed()
        return rows

    async def _post(self, texts: list[str]) -> bytes:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        content, number = json.dumps(body).encode(), 0
        ends = asyncio.get_running_loop().time() + TIMEOUT_S
        try:
            async with asyncio.timeout_at(ends):
                while True:
                    try:
                        async with self._connections.stream("POST", self._url, content) as response:
                            answer = await response.aread()
                        if response.status_code == 200:
                            return answer
                        failure = _transient_error(response, answer)
                    # Broken responses are retried too, because embedding twice does no harm.
                    except httpx2.RequestError:
                        failure = EmbedderUnavailable("The embedding server cannot be reached.")
                    await before_retry(failure, number, ends)
                    number += 1
        except TimeoutError as error:
            raise EmbedderUnavailable("The embedding server did not answer in time.") from error


def _model_changed() -> EmbedderUnavailable:
    return EmbedderUnavailable("The embedding server has changed its model; ask again.")


def _transient_error(response: httpx2.Response, content: bytes) -> EmbedderUnavailable:
    """Return the error of a server that may take the texts later. Raises other errors."""
    status = response.status_code
    if status in TRY_AGAIN and not is_out_of_credit(content):
        detail = f"The embedding server refuses work for now (status {status})."
        return EmbedderUnavailable(detail, retry_after_s=retry_after_s(response))
    cause = ": EIGENCAL_EMBEDDER_URL may not be the base URL of its API" if status == 404 else ""
    detail = f"The embedding server answered with status {status}{cause}."
    if status in REFUSING_TEXTS:
        detail = f"The embedding server refused the texts (status {status})."
    if status in (401, 403):
        detail = f"The embedding server refused the service's key (status {status})."
    if 400 <= status < 500:
        raise EmbedderRefusal(detail, error_message(content)[:MAX_MESSAGE_CHARS], status=status)
    raise EmbedderUnavailable(detail)


def _parse(content: bytes, count: int) -> tuple[NDArray[np.float64], str]:
    """Return the vectors in the order of the texts, and the model that the server reports ("" for none)."""
    try:
        payload = json.loads(content)
        if isinstance(payload, dict) and payload.get("error"):
            message = error_message(content)[:MAX_MESSAGE_CHARS]
            raise EmbedderRefusal("The embedding server answered with an error.", message, status=200)
        # By index, because a server with several workers may list vectors in any order; without, in order.
        by_index = {item.get("index", place): item["embedding"] for place, item in enumerate(payload["data"])}
        is_complete = sorted(by_index) == list(range(len(payload["data"]))) == list(range(count))
        vectors = np.array([by_index[place] for place in range(count)], dtype=np.float64)
        model = str(payload.get("model") or "")
    # Python parses 1e999 (OverflowError) and may fail on a thousand brackets (RecursionError).
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        is_complete = False
    if not is_complete:
        raise EmbedderUnavailable("The embedding server did not return one valid embedding per text.")
    return vectors, model
