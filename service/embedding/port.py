"""The port to an embedder: texts to unit vectors, each embedded once; and which texts of answers it is given.

Real adapters and the fake pass the same tests.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.errors import EmbedderUnavailable, Overloaded
from service.llm.port import Draw, is_blank
from service.lru import LRU
from service.sharing import Places
from service.spectral.evidence import checked_log_probabilities

# What an answer without text is: none, and left out; one outcome orthogonal to the rest; or the vector of "",
# as in the paper's scripts.
EmptyAnswers = Literal["failed", "outcome", "embedded"]
FAILED: EmptyAnswers = "failed"
EMBEDDED: EmptyAnswers = "embedded"
# What answers are compared by: the words beyond the question, numbers, names and negation
# (`service.claims.kernel`), these and what an LLM says of each two (`service.claims.comparison`), or the
# cosine of their embeddings, as in the paper.
Kernel = Literal["facts", "llm", "paper"]
FACTS: Kernel = "facts"
LLM: Kernel = "llm"
PAPER: Kernel = "paper"


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What decides the vectors: `revision` is a weights hash or hub revision, `precision` e.g. "float32".

    `empty_answers`: what an answer without text is. `kernel`: what answers are compared by. `comparer`: the
    LLM that compares them and the version of its prompt, "" where none does.
    """

    name: str
    revision: str
    dimension: int
    precision: str
    empty_answers: EmptyAnswers = FAILED
    kernel: Kernel = PAPER
    comparer: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Unit vectors, shape (n, dimension), one per text, all of the one embedder that `made_by` names."""

    vectors: NDArray[np.float32]
    made_by: EmbedderIdentity


class Embedder(Protocol):
    """Maps texts to unit vectors."""

    @property
    def empty_answers(self) -> EmptyAnswers:
        """Return what an answer without text is."""

    @property
    def kernel(self) -> Kernel:
        """Return what answers are compared by."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Return what decides the vectors; known once started; another once a server changes its model."""

    async def start(self) -> None:
        """Load the model."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of distinct texts, never those of two embedders.

        The empty text is among them only if `empty_answers` are embedded.
        Raises EmbedderUnavailable, Overloaded.
        """

    async def check(self) -> None:
        """Return when texts can be embedded; raise EmbedderUnavailable when not."""


# From answers to outcomes: equal answers are one.


def distinct(answers: Sequence[str]) -> tuple[list[str], NDArray[np.int_]]:
    """Return the distinct answers in order of appearance and, for each answer, the index of its text (m,).

    Empty answers are one text, "".
    """
    order: dict[str, int] = {}
    index = [order.setdefault(answer, len(order)) for answer in answers]
    return list(order), np.asarray(index, dtype=np.int_)


def supplied_draws(samples: Sequence[str], logprobs: Sequence[float] | None = None) -> tuple[Draw, ...]:
    """Return answers that others drew as if drawn here: stripped as ours are, a blank one is empty.

    logprobs: of each whole answer, in nats. Raises ValueError when there are not as many as answers.
    """
    totals = [None] * len(samples) if logprobs is None else logprobs
    return tuple(Draw(text.strip(), total_logprob=one) for text, one in zip(samples, totals, strict=True))


def usable(draws: Sequence[Draw], empty_answers: EmptyAnswers) -> tuple[Draw, ...]:
    """Return the draws that are answers: those that show a text, or all where an empty one is one."""
    return tuple(draw for draw in draws if empty_answers != FAILED or not is_blank(draw.text))


def totals(draws: Sequence[Draw]) -> tuple[float, ...] | None:
    """Return the log-probability of each whole answer in nats; None when one lacks its own, or for none."""
    values = tuple(draw.total_logprob for draw in draws if draw.total_logprob is not None)
    return values if draws and len(values) == len(draws) else None


def log_probabilities(draws: Sequence[Draw]) -> NDArray[np.float64] | None:
    """Return the log-probability of each whole answer (m,), in [-700, 0] nats.

    None unless every answer has one that can be one (not NaN, nor above 0).
    """
    values = totals(draws)
    try:
        return None if values is None else checked_log_probabilities(values)
    except ValueError:
        return None


def texts_to_embed(texts: Sequence[str], empty_answers: EmptyAnswers) -> list[str]:
    """Return the texts that have a vector of the embedder's: all but the empty one, or all."""
    return [text for text in texts if text or empty_answers == EMBEDDED]


def outcome_vectors(texts: Sequence[str], embedded: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return one unit vector per distinct text, from the vectors (n, d) of `texts_to_embed(texts)`.

    Shape (k, d) where every text was embedded. With an empty one that was not, (k, d + 1): the extra
    coordinate belongs to the empty answer alone, which makes it orthogonal to every other. The space keeps
    its dimension d all the same.
    """
    # No empty answer, or one that was embedded like any text.
    if len(embedded) == len(texts):
        return embedded
    vectors = np.zeros((len(texts), embedded.shape[1] + 1), dtype=np.float32)
    vectors[[i for i, text in enumerate(texts) if text], :-1] = embedded
    vectors[texts.index(""), -1] = 1.0
    return vectors


Vectors = NDArray[np.float32]
Compute = Callable[[list[str]], Awaitable[Vectors]]
"""Embeds texts: one unit row per text; raises what the caller is to see."""

MIN_NORM = 1e-12  # below it a direction is rounding noise


def unit_rows(raw: NDArray[np.generic], count: int) -> Vectors:
    """Return the rows scaled to length 1: float32, C-contiguous, shape (count, dimension).

    Raises EmbedderUnavailable when the shape is wrong, or a row is zero or not finite.
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
    """Embeds what is missing, keeps at most `max_entries` vectors, runs at most `max_queue` calls at once.

    Vectors take 4 bytes per dimension each.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[bytes, Vectors] = LRU(max_entries)
        self._queue = Places(max_queue)

    @property
    def num_queued(self) -> int:
        """Return the number of calls that are being embedded or wait."""
        return self._queue.size - self._queue.free

    async def rows(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded when the queue is full, and what `compute` raises.
        """
        rows = dict[str, Vectors]()
        for text in texts:
            if (row := self._kept.get(_key(text))) is not None:
                rows[text] = row
        if missing := [text for text in dict.fromkeys(texts) if text not in rows]:
            for text, row in zip(missing, await self._embed(missing), strict=True):
                rows[text] = row
                self._kept.put(_key(text), row.copy())  # a view would keep its whole batch in memory
        return np.stack([rows[text] for text in texts])

    async def _embed(self, texts: list[str]) -> Vectors:
        if not self._queue.has_room():
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=1.0)
        with self._queue.held():
            # A lone surrogate, which JSON can carry, is no text that a tokenizer or a socket takes.
            return await self._compute([text.encode("utf-8", "replace").decode() for text in texts])


def _key(text: str) -> bytes:
    # A hash: the cache could hold gigabytes of text else.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
