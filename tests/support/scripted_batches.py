"""POST /score/batch from a script: an item's line tells its own prompt. A process, for measuring callers.

python -m tests.support.scripted_batches    prints its port, and serves until it is ended
"""

import asyncio
import json

from tests.support.openai_server import Exchange, OpenAIServer, pieces

SCORE = {
    "id": "scr_1", "answer": "Eight", "lambda_max": 0.9, "entropy": 0.1, "entropy_normalized": 0.1,
    "calibrated": False, "uncalibrated": {"lambda_max": 0.9, "entropy": 0.1}, "calibration": None,
    "evidence": None, "candidate": None, "probability_correct": None, "decision": None, "warnings": [],
    "model": None, "embedder": "e", "num_samples": 2, "num_distinct": 1, "num_truncated": 0, "num_empty": 0,
    "ood_p_value": None,
    "usage": None, "timings_ms": {"queue": 0, "embed": 0, "spectrum": 0, "total": 0},
}  # fmt: skip


def line(index: int, **score: object) -> bytes:
    """Return the line of an item."""
    return json.dumps({"index": index, "result": SCORE | score}, ensure_ascii=False).encode() + b"\n"


async def whole(exchange: Exchange) -> None:
    """Answer every item with its own prompt, the last one first."""
    prompts = [item["prompt"] for item in exchange.body["items"]]
    lines = [line(index, answer=prompt) for index, prompt in enumerate(prompts)]
    await pieces(*reversed(lines), media_type="application/x-ndjson")(exchange)


async def serve() -> None:
    """Serve until the process is ended."""
    async with OpenAIServer(default=whole) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
