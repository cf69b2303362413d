"""The service without any cache of vectors or replies, for benchmarks that repeat questions."""

from functools import partial

from service.cli import main
from service.embedding import local
from service.llm import ask

if __name__ == "__main__":
    local.SentenceTransformerEmbedder = partial(local.SentenceTransformerEmbedder, cache_size=0)  # type: ignore[misc,assignment]
    ask.MAX_KEPT = 0
    main()
