"""A scripted service without an LLM."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.scripted_scores import SCORE, line

Behaviour = Callable[[Exchange], Awaitable[None]]


def problem(status: int, code: str, *, retryable: bool = False, detail: str = "Said.") -> dict[str, object]:
    """Return the body of an error."""
    return {"code": code, "detail": detail, "status": status, "title": "t", "retryable": retryable}


async def scored(exchange: Exchange, **fields: object) -> None:
    """Answer a question, or each question of a batch, with itself."""
    if "items" in exchange.body:
        lines = [line(i, answer=str(item["prompt"])) for i, item in enumerate(exchange.body["items"])]
        await exchange.send(200, b"".join(lines))
    else:
        await exchange.send(200, SCORE | {"answer": str(exchange.body.get("prompt"))} | fields)


def batch(refused: str, status: int, code: str, *, retryable: bool = False) -> Behaviour:
    """Return a behaviour that answers each question of a batch with itself, and refuses one question."""

    async def answer(exchange: Exchange) -> None:
        lines = b""
        for index, item in enumerate(exchange.body["items"]):
            error = {"index": index, "error": problem(status, code, retryable=retryable) | {"type": "t"}}
            result = json.dumps(error).encode() + b"\n"
            lines += result if item["prompt"] == refused else line(index, answer=item["prompt"])
        await exchange.send(200, lines)

    return answer


@contextmanager
def scripted(behaviour: Behaviour) -> Iterator[tuple[str, OpenAIServer]]:
    """Yield the URL of a service with this behaviour, and the service."""
    with serving_in_thread(OpenAIServer(default=behaviour)) as server:
        yield f"http://127.0.0.1:{server.port}", server
