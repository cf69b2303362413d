"""An embeddings server on a real socket whose model can be swapped and held."""

import asyncio
import hashlib
from collections.abc import Callable

import numpy as np

from tests.support.openai_server import Exchange, OpenAIServer

DIMENSION = 24


def vector(weights: str, text: str) -> list[float]:
    """Return the vector that a model of these weights gives a text."""
    seed = hashlib.sha256(f"{weights}\0{text}".encode()).digest()
    return list(np.random.default_rng(list(seed)).standard_normal(DIMENSION))


class EmbeddingsServer(OpenAIServer):
    """Answers with `vector(weights, text)` under the name `reports`, `noise` added, once `gate` is open.

    `before_answer` is called with the number of the request, 1 at first: there a test swaps the model.
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
        data = [{"index": i, "embedding": one} for i, one in enumerate(vectors)]
        await exchange.send(200, {"model": self.reports, "data": data})
