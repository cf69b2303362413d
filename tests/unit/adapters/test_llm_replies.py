"""Answers of a real server that are longer than what was asked for can be, in every form."""

import asyncio
import gzip
import tracemalloc
import zlib
from typing import Any

import pytest

from service.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, Sampling
from service.llm.wire import error_message, max_bytes_of
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, endless, status

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
MEMORY = 24 * 2**20
SENT = 2**26


def ask(**more: Any) -> GenerationRequest:
    return GenerationRequest(num_samples=2, sampling=Sampling(max_tokens=16), prompt="p", **more)


def failure(behaviour: Behaviour, request: GenerationRequest) -> tuple[EigencalError, int, int]:
    """Return the error, the most memory (bytes) taken on the way, and what was sent."""

    async def main() -> tuple[EigencalError, int, int]:
        async with OpenAIServer(default=behaviour) as server:
            llm = HttpLanguageModel(server.url, model=MODEL)
            tracemalloc.start()
            try:
                with pytest.raises(EigencalError) as caught:
                    await asyncio.wait_for(llm.generate(request), 60)
                return caught.value, tracemalloc.get_traced_memory()[1], server.sent
            finally:
                tracemalloc.stop()
                await llm.stop()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "behaviour",
    [endless(b" " * 2**16, JSON), endless(b"\n" * 2**16, JSON)],
    ids=["plain", "newlines"],
)
def test_an_answer_longer_than_asked_for_is_broken_off(behaviour: Behaviour) -> None:
    error, memory, sent = failure(behaviour, ask())
    assert isinstance(error, LLMBadResponse)
    assert "longer than what was asked for" in error.detail
    assert memory < MEMORY
    assert sent < SENT


@pytest.mark.parametrize("piece", [b"x" * 2**16, b"data: x\n\n" * 2**12], ids=["one line", "many lines"])
def test_so_is_a_stream(piece: bytes) -> None:
    async def first_an_event(exchange: Exchange) -> None:
        await endless(b": " + piece.replace(b"data", b"tada"), EVENTS)(exchange)

    error, memory, sent = failure(first_an_event, ask(deadline_s=50.0))
    assert isinstance(error, LLMBadResponse)
    assert memory < MEMORY
    assert sent < SENT


def test_a_refusal_without_end_is_told_without_its_words() -> None:
    error, memory, sent = failure(endless(b"too bad " * 2**13, JSON, code=400), ask())
    assert isinstance(error, LLMError)
    assert error.extra["llm_status"] == 400
    assert memory < MEMORY
    assert sent < SENT


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_health_and_models_are_bounded_too(path: str) -> None:
    class Large(OpenAIServer):
        async def _get(self, exchange: Exchange) -> None:
            if exchange.path == path:
                await endless(b" " * 2**16, JSON)(exchange)
            else:
                await super()._get(exchange)

    async def main() -> int:
        async with Large() as server:
            llm = HttpLanguageModel(server.url)
            tracemalloc.start()
            with pytest.raises(LLMUnavailable, match="longer"):
                await llm.check()
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            await llm.stop()
            assert server.sent < SENT
            return memory

    assert asyncio.run(main()) < 2 * MEMORY


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
def test_packed_answers_are_read(encoding: str, pack: Any) -> None:
    said = b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}'

    async def main() -> None:
        behaviour = status(200, pack(said), {"content-encoding": encoding})
        async with OpenAIServer(default=behaviour) as server:
            llm = HttpLanguageModel(server.url, model=MODEL)
            assert [draw.text for draw in (await llm.generate(ask())).draws] == ["Paris"] * 2
            assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"
            await llm.stop()

    asyncio.run(main())


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_what_cannot_be_unpacked_is_a_bad_response(encoding: str) -> None:
    error, _, _ = failure(status(200, b"\x00not packed", {"content-encoding": encoding}), ask())
    assert isinstance(error, LLMBadResponse)


def test_the_bound_grows_with_what_is_asked() -> None:
    small = max_bytes_of({"n": 1, "max_tokens": 16})
    assert max_bytes_of({"n": 20, "max_tokens": 16}) > small
    assert max_bytes_of({"n": 1, "max_tokens": 512}) > small


def test_what_a_server_says_can_be_stored_in_any_database() -> None:
    assert error_message(b'{"error": {"message": "a\\u0000b"}}') == error_message(b"a\0b") == "ab"
