"""The embedder behind an OpenAI-style POST /v1/embeddings server."""

import logging
import time
from collections.abc import Sequence

import httpx
import numpy as np

from service.adapters.embedder.embeddings_client import EmbeddingsClient
from service.adapters.embedder.vector_cache import (
    Made,
    Maker,
    TwoMakersError,
    VectorCache,
    Vectors,
    unit_rows,
)
from service.adapters.shared_check import SharedCheck
from service.domain.errors import EmbedderUnavailable
from service.domain.models import EMBEDDED, FAILED, EmbedderIdentity, EmptyAnswers
from service.domain.ports import Embedded

log = logging.getLogger(__name__)

CHECK_HOLDS_S = 5.0
CHECK_TIMEOUT_S = 10.0
MARK = "check"  # embedded with every request: other weights give it another vector, whatever their name
SAME_MARK = 0.99  # cosine; rounding, precision and batching stay well above, other models far below
MAKERS_KNOWN = 4


class HttpEmbedder:
    """Texts to unit vectors by a server; what the server does with long texts is its own affair.

    `base_url` with or without /v1. Connect errors, 429, 502, 503 and 504 are tried again within `timeout_s`
    (a Retry-After is honoured), read timeouts and other refusals are not. Name, dimension and the model that
    the server reports are learned from the first answer: a server that is not up yet is no error at start.

    A server may be swapped under way. What shows it: another model reported, another dimension, or another
    vector of a text sent with every request (cosine below 0.99: other weights behind the same name, unless
    very close ones). Vectors kept are forgotten then, and calls that met both start again. The identity names
    the model reported, so other weights behind the same name keep it.

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
        max_queue: int = 64,
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
        self._tried = False
        self._texts_per_request = max(1, max_batch - 1)  # the mark goes with every request
        self._makers: list[Maker] = []  # the last one heard from comes last
        silent = EmbedderUnavailable("The embedding server did not answer in time.")
        self._check = SharedCheck(self._try, longest_s=min(timeout_s, CHECK_TIMEOUT_S), too_late=silent)
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=max_queue)
        self._answered_at = float("-inf")

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (the model as the server reports it), dimension, "float32".

        Raises EmbedderUnavailable until the server has answered once.
        """
        if not self._makers:
            raise EmbedderUnavailable("The embedding server has not answered yet.")
        return self._makers[-1].identity

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
        return await self._vectors.rows(texts)

    async def embed_ahead(self, texts: Sequence[str]) -> None:
        """Embed texts before they are asked for, while nobody waits. Raises EmbedderUnavailable."""
        await self._vectors.ahead(texts)

    async def check(self) -> None:
        """Embed a word unless the server has just answered; raise EmbedderUnavailable when it does not.

        Also the empty text where empty answers are embedded: a server that refuses it is not ready. One check
        at a time, whose finding holds for a second: whoever asks needs no key.
        """
        silent = time.monotonic() - self._answered_at > CHECK_HOLDS_S
        if not self._client.is_open or silent or not self._tried:
            await self._check()

    async def _try(self) -> None:
        await self._ask([""] if self.empty_answers == EMBEDDED else [])
        self._tried = True  # an answer to other texts does not show that the empty one is taken

    async def _compute(self, texts: list[str]) -> Made:
        starts = range(0, len(texts), self._texts_per_request)
        parts = [await self._ask(texts[i : i + self._texts_per_request]) for i in starts]
        if len({part.maker for part in parts}) > 1:
            raise TwoMakersError
        return Made(np.concatenate([part.rows for part in parts]), parts[0].maker)

    async def _ask(self, texts: list[str]) -> Made:
        raw, revision = await self._client.embed([MARK, *texts])
        rows = unit_rows(raw, 1 + len(texts))
        self._answered_at = time.monotonic()
        identity = EmbedderIdentity(self._model, revision, rows.shape[1], "float32", self.empty_answers)
        return Made(rows[1:], self._recognised(identity, rows[0]))

    def _recognised(self, identity: EmbedderIdentity, mark: Vectors) -> Maker:
        """Return the maker that an answer shows, and note it as the last one heard from."""
        known = next((one for one in self._makers if _same(one, identity, mark)), None)
        maker = known or Maker(identity, mark.copy())
        if self._makers and maker is not self._makers[-1]:
            log.warning("the embedding server has changed its model; it reports %s", identity.revision)
        self._makers = [*(one for one in self._makers if one is not maker), maker][-MAKERS_KNOWN:]
        return maker


def _same(known: Maker, identity: EmbedderIdentity, mark: Vectors) -> bool:
    if known.identity != identity or known.mark is None:
        return False
    return float(known.mark @ mark) > SAME_MARK
