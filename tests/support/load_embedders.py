"""A program that loads the embedder of each name on stdin, and writes its identity or the error.

It is a separate process because the hub's client reads the environment only once, on import.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from service.embedding.local import SentenceTransformerEmbedder
from service.llm.weights import WeightsError


async def loaded(name: str, cache_dir: Path) -> dict[str, object]:
    embedder = SentenceTransformerEmbedder(name, cache_dir=cache_dir)
    try:
        await embedder.start()
        rows = (await embedder.embed(["paris"])).vectors
    except WeightsError as error:
        return {"error": str(error)}
    finally:
        await embedder.stop()
    return {**asdict(embedder.identity), "vector": rows[0].tolist()}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(loaded(line.strip(), Path(sys.argv[1])))), flush=True)
