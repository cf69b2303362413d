"""The fakes do what tests rely on."""

import asyncio

import numpy as np
import pytest

from service.errors import DeadlineExceeded, EmbedderUnavailable, LLMUnavailable
from service.llm.port import GenerationRequest, Message, Sampling
from tests.support.fakes import FakeEmbedder, FakeLLM


def ask(prompt: str, n: int = 3, **more: object) -> GenerationRequest:
    return GenerationRequest(num_samples=n, sampling=Sampling(), prompt=prompt, **more)


def run(coroutine):
    return asyncio.run(coroutine)


def test_script_cycles_and_default_answers_the_rest() -> None:
    llm = FakeLLM({"who?": ["a", "b"]}, default=["z"])
    assert [d.text for d in run(llm.generate(ask("who?"))).draws] == ["a", "b", "a"]
    assert [d.text for d in run(llm.generate(ask("what?"))).draws] == ["z", "z", "z"]
    talk = GenerationRequest(2, Sampling(), messages=(Message("user", "who?"),))
    assert [d.text for d in run(llm.generate(talk)).draws] == ["a", "b"]


def test_failures_come_in_order_then_answers() -> None:
    llm = FakeLLM(fail_with=[LLMUnavailable("down")])
    with pytest.raises(LLMUnavailable):
        run(llm.generate(ask("x")))
    assert len(run(llm.generate(ask("x"))).draws) == 3


def test_partial_delivery_says_why() -> None:
    generation = run(FakeLLM(deliver=2).generate(ask("x", n=5)))
    assert (len(generation.draws), generation.requested, generation.missing_reason) == (2, 5, "error")


def test_gate_holds_until_deadline_and_cancellation_is_counted() -> None:
    async def scenario() -> FakeLLM:
        llm = FakeLLM(gate=asyncio.Event())
        with pytest.raises(DeadlineExceeded):
            await llm.generate(ask("x", deadline_s=0.01))
        task = asyncio.create_task(llm.generate(ask("x")))
        await asyncio.sleep(0)
        assert llm.active == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return llm

    llm = run(scenario())
    assert (llm.cancelled, llm.active) == (1, 0)


def test_embedder_unit_rows_casefolded_and_overridden() -> None:
    embedder = FakeEmbedder(32, vectors={"up": [2.0] + [0.0] * 31})
    rows = run(embedder.embed(["Paris", "paris", "Lyon", "up"])).vectors
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rows[0], rows[1])
    assert abs(float(rows[0] @ rows[2])) < 0.9
    assert rows[3][0] == 1.0
    assert rows.dtype == np.float32
    assert run(embedder.embed([])).vectors.shape == (0, 32)


def test_embedder_unavailable() -> None:
    embedder = FakeEmbedder()
    embedder.available = False
    with pytest.raises(EmbedderUnavailable):
        run(embedder.embed(["x"]))
