"""The service without a cache of vectors, for benchmarks whose questions come again and again."""

from functools import partial

from service.cli import main
from service.embedding import local

if __name__ == "__main__":
    local.SentenceTransformerEmbedder = partial(local.SentenceTransformerEmbedder, cache_size=0)  # type: ignore[misc,assignment]
    main()
