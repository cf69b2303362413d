"""An OpenAI-compatible server whose n answers, all distinct, end one after the other over a second."""

import asyncio
import itertools
import sys

from tests.support.openai_server import MODEL, Exchange, OpenAIServer, completion

OVER_S = 1.0
WORDS = ("the", "river", "that", "runs", "by", "the", "old", "town", "of")
_numbers = itertools.count()


def answer() -> str:
    """Return an answer that no request has had before: no vector of it is kept."""
    return " ".join((*WORDS, str(next(_numbers))))


async def spread(exchange: Exchange) -> None:
    """Answer over a second, as a stream of a chunk per word or at its end, as asked."""
    answers = [answer() for _ in range(int(exchange.body.get("n", 1)))]
    if not exchange.body.get("stream"):
        await asyncio.sleep(OVER_S)
        await exchange.send(200, completion(exchange, answers, "stop"))
        return
    await exchange.start_stream()
    begun = asyncio.get_running_loop().time()
    for i, text in enumerate(answers):
        await asyncio.sleep(begun + OVER_S * (i + 1) / len(answers) - asyncio.get_running_loop().time())
        pieces = text.split(" ")
        for j, piece in enumerate(pieces):
            last = j + 1 == len(pieces)
            delta = {"content": piece if last else f"{piece} "}
            choice = {"index": i, "finish_reason": "stop" if last else None, "delta": delta}
            await exchange.event({"model": MODEL, "choices": [choice]})
    await exchange.event("[DONE]")
    exchange.writer.close()


async def main(port: int) -> None:
    """Serve until the process is stopped."""
    async with OpenAIServer(default=spread, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
