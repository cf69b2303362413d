"""The port to an embedder: texts to unit vectors. Real adapters and the fake pass the same tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

# What an answer without text is: none, one outcome orthogonal to the rest, or the model's vector for "".
EmptyAnswers = Literal["failed", "outcome", "embedded"]
FAILED: EmptyAnswers = "failed"
EMBEDDED: EmptyAnswers = "embedded"


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What decides the vectors: `revision` is a weights hash or hub revision, `precision` e.g. "float32".

    `empty_answers`: what an answer without text is.
    """

    name: str
    revision: str
    dimension: int
    precision: str
    empty_answers: EmptyAnswers = FAILED


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

    async def check(self) -> None:
        """Return when texts can be embedded; raise EmbedderUnavailable when not."""
