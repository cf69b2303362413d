"""Ports: what the domain asks of the outside world. Real adapters and fakes pass the same tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.domain.models import EmbedderIdentity, EmptyAnswers, Generation, GenerationRequest, LLMIdentity


class LanguageModel(Protocol):
    """Draws answers. Cancelling the task that awaits `generate` frees the model."""

    async def start(self) -> None:
        """Acquire what is needed to serve. A server that is not up yet is no error here."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return what decides the distribution of answers to this request."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw `request.num_samples` answers; fewer (at least one) when some failed or the deadline struck.

        Raises LLMUnavailable, LLMError, LLMBadResponse, ModelNotFound, DeadlineExceeded, Overloaded.
        """

    async def check(self) -> None:
        """Return when the model can serve; raise LLMUnavailable when it cannot."""


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

    async def embed_ahead(self, texts: Sequence[str]) -> None:
        """Make vectors that `embed` will soon be asked for, while nobody else waits for any; return then.

        One that keeps no vectors does nothing. Raises EmbedderUnavailable.
        """

    async def check(self) -> None:
        """Return when texts can be embedded; raise EmbedderUnavailable when not."""


@dataclass(frozen=True, slots=True)
class Document:
    """JSON text to be kept under three names, for `ttl_s` seconds from when it is put."""

    kind: str
    id: str
    owner: str
    text: str = field(repr=False)  # it may hold prompts and answers, which no log may
    ttl_s: float


class KeptDocuments(Protocol):
    """JSON documents kept for a while, for whichever replica is asked for them next.

    `kind` and `id_` name one; `owner` is the mark of the key that it was made under, and no other finds it.
    How many of a kind are kept is bounded: the oldest go first. All of them raise StoreUnavailable.
    """

    async def put(
        self, kind: str, id_: str, owner: str, document: Mapping[str, Any], *, ttl_s: float
    ) -> None:
        """Keep a document for `ttl_s` seconds, in place of the one that was kept under these names."""

    async def put_all(self, documents: Sequence[Document]) -> None:
        """Keep many at once, no two of the same names: all of them, or none when it raises."""

    async def get(self, kind: str, id_: str, owner: str) -> dict[str, Any] | None:
        """Return the document; None where there is none, its time is over, or it is another owner's."""


class Peers(Protocol):
    """The replicas that share one store, by their names."""

    @property
    def own_id(self) -> str:
        """Return the name of this one."""

    async def lives(self, replica_id: str) -> bool:
        """Tell whether a replica lives; of a dead one this takes seconds to be known. StoreUnavailable."""
