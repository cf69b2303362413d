"""An embeddings server on a real socket, with a model that can be replaced or made to wait."""

import asyncio
import hashlib
from collections.abc import Callable

import numpy as np

from tests.support.openai_server import Exchange, OpenAIServer

DIMENSION = 24


def vector(weights: str, text: str) -> list[float]:
    """Return the vector of a text under these weights."""
    seed = hashlib.sha256(f"{weights}\0{text}".encode()).digest()
    return list(np.random.default_rng(list(seed)).standard_normal(DIMENSION))


class EmbeddingsServer(OpenAIServer):
    """Answers with `vector(weights, text)` plus `noise` under the model name `reports`, once `gate` is open.

    `before_answer` is called with the number of the request, from 1; a test can replace the model there.
    """

    def __init__(self, weights: str = "A", reports: str = "model") -> None:
        super().__init__(default=self._embed)
        self.weights, self.reports = weights, reports
        self.noise = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.before_answer: Callable[[int], None] = lambda number: None

    async def _embed(self, exchange: Exchange) -> None:
        await self.gate.wait()
        self.before_answer(len(self.requests))
        texts = exchange.body["input"]
        noise = self.noise * np.random.default_rng(len(self.requests)).standard_normal(DIMENSION)
        vectors = [list(vector(self.weights, text) + noise) for text in texts]
        data = [{"index": i, "embedding": vector_} for i, vector_ in enumerate(vectors)]
        await exchange.send(200, {"model": self.reports, "data": data})
