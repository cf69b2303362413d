"""The service without any cache of vectors or comparisons, for benchmarks that repeat questions."""

from functools import partial

from service.claims import comparison
from service.cli import main
from service.embedding import local

if __name__ == "__main__":
    local.SentenceTransformerEmbedder = partial(local.SentenceTransformerEmbedder, cache_size=0)  # type: ignore[misc,assignment]
    comparison.MAX_KEPT = 0
    main()
