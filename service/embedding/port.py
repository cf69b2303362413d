"""The port to an embedder, which maps texts to unit vectors, and its cache.

The real adapters and the fake pass the same tests.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.errors import EmbedderUnavailable, Overloaded
from service.lru import LRU
from service.sharing import Places

# How answers are compared: by the words beyond the question, numbers, names and negation ("facts",
# `service.claims.kernel`), by these and an LLM's comparison of each pair ("llm",
# `service.claims.comparison`), or by the cosine of their embeddings ("paper").
Kernel = Literal["facts", "llm", "paper"]
FACTS: Kernel = "facts"
LLM: Kernel = "llm"
PAPER: Kernel = "paper"


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The parameters that determine the vectors.

    revision: weights hash or hub revision. precision: for example "float32". kernel: how answers are
    compared. comparer: the LLM that compares answers and the version of its prompt, "" for none.
    """

    name: str
    revision: str
    dimension: int
    precision: str
    kernel: Kernel = PAPER
    comparer: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Unit vectors, shape (n, dimension), one per text, all made by the embedder `made_by`."""

    vectors: NDArray[np.float32]
    made_by: EmbedderIdentity


class Embedder(Protocol):
    """Maps texts to unit vectors."""

    @property
    def kernel(self) -> Kernel:
        """Return how answers are compared."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the identity, known after `start`. It changes if a server changes its model."""

    async def start(self) -> None:
        """Load the model."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of distinct texts, all by the same model.

        Raises EmbedderUnavailable, Overloaded.
        """

    async def check(self) -> None:
        """Raise EmbedderUnavailable unless texts can be embedded."""


Vectors = NDArray[np.float32]
Compute = Callable[[list[str]], Awaitable[Vectors]]
"""Embeds texts: one unit row per text. Its errors reach the caller."""

MIN_NORM = 1e-12  # the direction of a shorter vector is rounding noise


def unit_rows(raw: NDArray[np.generic], count: int) -> Vectors:
    """Return the rows scaled to length 1: float32, C-contiguous, shape (count, dimension).

    Raises EmbedderUnavailable for a wrong shape, or a row that is zero or not finite.
    """
    if raw.ndim != 2 or raw.shape[0] != count or raw.shape[1] == 0:
        raise EmbedderUnavailable("The embedder did not return one vector per text.")
    rows = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a server may send any number
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise EmbedderUnavailable("The embedder returned a vector that is not finite.")
    if count and norms.min() < MIN_NORM:
        raise EmbedderUnavailable("The embedder returned a zero vector.")
    return np.ascontiguousarray(rows / norms, dtype=np.float32)


class VectorCache:
    """Caches at most `max_entries` vectors, embeds missing texts, and runs at most `max_queue` calls at once.

    A vector takes 4 bytes per dimension.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[bytes, Vectors] = LRU(max_entries)
        self._queue = Places(max_queue)

    @property
    def num_queued(self) -> int:
        """Return the number of calls that are being embedded or waiting."""
        return self._queue.size - self._queue.free

    async def rows(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded if the queue is full, and the errors of `compute`.
        """
        # Hashed, because the texts themselves could take gigabytes.
        keys = {text: sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts}
        rows = {text: row for text, key in keys.items() if (row := self._kept.get(key)) is not None}
        if missing := [text for text in keys if text not in rows]:
            for text, row in zip(missing, await self._embed(missing), strict=True):
                rows[text] = row
                self._kept.put(keys[text], row.copy())  # a view would keep its whole batch in memory
        return np.stack([rows[text] for text in texts])

    async def _embed(self, texts: list[str]) -> Vectors:
        if not self._queue.has_room():
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=1.0)
        with self._queue.held():
            # JSON may contain lone surrogates, which tokenizers and sockets reject.
            return await self._compute([text.encode("utf-8", "replace").decode() for text in texts])
