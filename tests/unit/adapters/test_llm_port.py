"""The contract of LanguageModel: the same tests for the fake, the HTTP adapter and the embedded LLM."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from service.errors import DeadlineExceeded
from service.llm.admission import AdmissionQueue
from service.llm.embedded import EmbeddedLanguageModel
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, LanguageModel, Message, Sampling
from tests.support.fakes import FakeLLM
from tests.support.openai_server import OpenAIServer, answers, hang

SHORT = Sampling(temperature=0.7, max_tokens=8, stop=("\n",))
LONG = Sampling(temperature=0, max_tokens=1000)  # greedy decoding after few-shot text ends only at the limit
Open = Callable[..., AbstractAsyncContextManager[LanguageModel]]


def ask(n: int = 3, **more: Any) -> GenerationRequest:
    return GenerationRequest(num_samples=n, **({"sampling": SHORT, "prompt": "Who sang Yesterday?"} | more))


@asynccontextmanager
async def started(llm: LanguageModel) -> AsyncIterator[LanguageModel]:
    await llm.start()
    try:
        yield llm
    finally:
        await llm.stop()
        await llm.stop()  # idempotent


class LanguageModelContract:
    """`opened(busy=True)` opens a model with a next answer to a LONG request that outlasts the test."""

    @pytest.fixture
    def opened(self) -> Open:
        pytest.fail("each subclass opens a model of its own")

    def played(self, opened: Open, scenario: Callable[[LanguageModel], Awaitable[Any]], **how: Any) -> Any:
        async def main() -> Any:
            async with opened(**how) as llm:
                return await asyncio.wait_for(scenario(llm), 60)

        return asyncio.run(main())

    def test_number_of_answers_is_as_requested(self, opened: Open) -> None:
        async def scenario(llm: LanguageModel) -> None:
            for n in (1, 2, 5):
                generation = await llm.generate(ask(n))
                assert (len(generation.draws), generation.requested) == (n, n)
                assert generation.missing_reason is None
                assert all(draw.text == draw.text.strip() for draw in generation.draws)
                assert generation.model
                assert generation.usage.prompt_tokens > 0
                assert generation.queued_s >= 0

        self.played(opened, scenario)

    def test_conversations_are_answered(self, opened: Open) -> None:
        async def scenario(llm: LanguageModel) -> None:
            talk = ask(2, prompt=None, messages=(Message("system", "Be brief."), Message("user", "Hi")))
            assert len((await llm.generate(talk)).draws) == 2
            assert llm.identity(talk).api == "chat"

        self.played(opened, scenario)

    def test_identity_is_stable_and_names_the_model(self, opened: Open) -> None:
        async def scenario(llm: LanguageModel) -> None:
            before = llm.identity(ask())
            generation = await llm.generate(ask())
            assert llm.identity(ask(7, prompt="Other?", priority=1)) == before
            assert before.model == generation.model

        self.played(opened, scenario)

    def test_deadline_without_an_answer(self, opened: Open) -> None:
        async def scenario(llm: LanguageModel) -> None:
            with pytest.raises(DeadlineExceeded):
                await llm.generate(ask(sampling=LONG, deadline_s=0.2))

        self.played(opened, scenario, busy=True)

    def test_cancelling_frees_the_model(self, opened: Open) -> None:
        async def scenario(llm: LanguageModel) -> None:
            task = asyncio.create_task(llm.generate(ask(sampling=LONG)))
            await asyncio.sleep(0.1)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len((await llm.generate(ask())).draws) == 3

        self.played(opened, scenario, busy=True)


class TestFake(LanguageModelContract):
    @pytest.fixture
    def opened(self) -> Open:
        @asynccontextmanager
        async def open_fake(*, busy: bool = False) -> AsyncIterator[LanguageModel]:
            gate = asyncio.Event()

            def on_request(request: GenerationRequest) -> None:
                if request.sampling == SHORT:
                    gate.set()

            async with started(FakeLLM(tell=2, gate=gate if busy else None, on_request=on_request)) as llm:
                yield llm

        return open_fake


class TestHttp(LanguageModelContract):
    @pytest.fixture(params=["chat", "completions", "ignores n"])
    def opened(self, request: pytest.FixtureRequest) -> Open:
        one_by_one = request.param == "ignores n"

        @asynccontextmanager
        async def open_http(*, busy: bool = False) -> AsyncIterator[LanguageModel]:
            default = answers(at_most=1 if one_by_one else None)
            async with OpenAIServer([hang] if busy else [], default=default) as server:
                api = "chat" if one_by_one else request.param
                async with started(
                    HttpLanguageModel(server.url, api=api, queue=AdmissionQueue(4, 16))
                ) as llm:
                    yield llm

        return open_http


@pytest.fixture(scope="module")
def loaded(llm_weights: Any) -> Iterator[tuple[asyncio.Runner, EmbeddedLanguageModel]]:
    with asyncio.Runner() as runner:
        llm = EmbeddedLanguageModel(llm_weights)
        runner.run(llm.start())
        yield runner, llm
        runner.run(llm.stop())
        runner.run(llm.stop())


@pytest.mark.weights
class TestEmbedded(LanguageModelContract):
    @pytest.fixture
    def opened(self, loaded: tuple[asyncio.Runner, EmbeddedLanguageModel]) -> Any:
        return loaded

    def played(self, opened: Any, scenario: Callable[[LanguageModel], Awaitable[Any]], **how: Any) -> Any:
        """Play on the model loaded once for all: a LONG request keeps it busy by itself."""
        runner, llm = opened
        return runner.run(asyncio.wait_for(scenario(llm), 60))
