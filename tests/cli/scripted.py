"""A service from a script: what each question is answered, without an LLM."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.scripted_scores import SCORE

Behaviour = Callable[[Exchange], Awaitable[None]]


def problem(status: int, code: str, *, retryable: bool = False, detail: str = "Said.") -> dict[str, object]:
    """Return the body of an error."""
    return {"code": code, "detail": detail, "status": status, "title": "t", "retryable": retryable}


async def scored(exchange: Exchange, **fields: object) -> None:
    """Answer a question with itself."""
    await exchange.send(200, SCORE | {"answer": str(exchange.body.get("prompt"))} | fields)


@contextmanager
def scripted(behaviour: Behaviour) -> Iterator[tuple[str, OpenAIServer]]:
    """Yield the URL of a service that answers every request so, and the service."""
    with serving_in_thread(OpenAIServer(default=behaviour)) as server:
        yield f"http://127.0.0.1:{server.port}", server
