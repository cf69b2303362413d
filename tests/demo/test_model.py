"""The embedded LLM with real weights, and its sampling loop on a toy model."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from service.llm.embedded import (
    Continuation,
    EmbeddedLanguageModel,
    Sampler,
    StoppedError,
    converted_model,
)

from service.errors import DeadlineExceeded, LLMUnavailable, ModelNotFound, Overloaded, PromptTooLong
from service.llm import embedded
from service.llm.port import GenerationRequest, Message, Sampling
from service.llm.weights import WeightsError

LINE = Sampling(stop=("\n",), max_tokens=16)


# The sampling loop, on a model with given next-token scores


class ToyCache:
    def __init__(self) -> None:
        self.length, self.rows, self.widths = 0, 1, []

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.rows = repeats

    def batch_select_indices(self, indices: Any) -> None:
        self.rows = len(indices)


class ToyModel:
    """Each token has fixed scores for its successor. Records the batch of each call."""

    def __init__(self, scores: dict[int, list[float]]) -> None:
        self.scores = scores
        self.batches: list[tuple[int, int]] = []

    def __call__(self, *, input_ids: Any, past_key_values: Any, use_cache: bool, logits_to_keep: int) -> Any:
        import torch

        cache = past_key_values or ToyCache()
        assert use_cache
        assert cache.rows == input_ids.shape[0]
        self.batches.append(tuple(input_ids.shape))
        rows = [self.scores[int(token)] for token in input_ids[:, -1]]
        logits = torch.tensor(rows)[:, None, :]

        class Output:
            pass

        output = Output()
        output.logits, output.past_key_values = logits, cache
        return output


class Letters:
    """Token i is letter i; the last token is a newline."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join("abc\n"[token] for token in tokens)


NEVER = -math.inf
AFTER = {0: [0.0, 0.0, NEVER, 0.0], 1: [NEVER, 0.0, 1.0, 2.0], 2: [0.0, NEVER, NEVER, NEVER]}


def filled(
    count: int, prompt: list[int], model: ToyModel | None = None, eos: tuple[int, ...] = (), **how: Any
) -> list[Continuation]:
    rows = [Continuation() for _ in range(count)]
    arguments = {"temperature": 1.0, "max_tokens": 50, "stop": ("\n",)}
    options = {name: how.pop(name) for name in ("seed", "is_stopped", "num_alternatives") if name in how}
    sampler = Sampler(model or ToyModel(AFTER), Letters(), eos)
    with contextlib.suppress(StoppedError):
        sampler.draw(prompt, rows, Sampling(**(arguments | how)), **options)
    return rows


drawn = partial(filled, seed=1)


def first_tokens(count: int, prompt: list[int], **changes: Any) -> Counter[int]:
    return Counter(row.tokens[0] for row in drawn(count, prompt, max_tokens=1, **changes))


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, {1: 0.0900, 2: 0.2447, 3: 0.6652}),
        ({"temperature": 0.5}, {1: 0.0159, 2: 0.1173, 3: 0.8668}),
        ({"top_k": 2}, {2: 0.2689, 3: 0.7311}),
        ({"top_p": 0.6}, {3: 1.0}),
        ({"top_p": 0.7}, {2: 0.2689, 3: 0.7311}),
        ({"temperature": 0.0}, {3: 1.0}),
    ],
)
def test_tokens_follow_the_requested_distribution(changes: dict[str, Any], shares: dict[int, float]) -> None:
    seen = first_tokens(1500, [1], **changes)
    assert set(seen) == set(shares)
    for token, share in shares.items():
        assert seen[token] / 1500 == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("changes", [{"temperature": 0.3}, {"temperature": 0.0}, {"top_p": 0.6}], ids=str)
def test_total_logprob_is_of_the_models_distribution(changes: dict[str, Any]) -> None:
    for row in drawn(20, [0], **changes):
        expected, last = 0.0, 0
        for token in row.tokens:  # including the newline that ended the row
            weights = [math.exp(score) for score in AFTER[last]]
            expected, last = expected + math.log(weights[token] / sum(weights)), token
        assert row.truncated or row.tokens[-1] == 3
        assert math.fsum(row.logprobs) == pytest.approx(expected, abs=1e-5)


def test_top_first_tokens_are_of_the_models_distribution() -> None:
    for row in drawn(2, [0, 1], temperature=0.0, num_alternatives=2):
        total = math.log(1 + math.e + math.e**2)
        assert row.first_tokens == pytest.approx({"\n": 2 - total, "c": 1 - total}, abs=1e-5)
    assert drawn(1, [1])[0].first_tokens == {}


def test_rows_end_before_the_stop_string() -> None:
    rows = drawn(50, [0])
    assert all(row.ended and not row.truncated and "\n" not in row.text for row in rows)
    assert len({row.text for row in rows}) > 5


def test_end_tokens_and_max_tokens() -> None:
    assert all(row.text == "a" * len(row.text) for row in drawn(20, [0], eos=(1,)))
    rows = drawn(20, [2], stop=(), max_tokens=1)
    assert all((row.text, row.truncated) == ("a", True) for row in rows)


def test_the_prompt_is_computed_once_and_ended_rows_leave_the_batch() -> None:
    model = ToyModel(AFTER)
    drawn(20, [0, 1, 2, 0], model)
    assert model.batches[0] == (1, 4)
    widths = [rows for rows, _ in model.batches[1:]]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 20
    assert all(length == 1 for _, length in model.batches[1:])


def test_stopping_keeps_the_rows_that_have_ended() -> None:
    looks = iter([False, False, False, True])
    rows = drawn(50, [0], is_stopped=lambda: next(looks))
    assert {row.ended for row in rows} == {True, False}


def test_samples_without_a_seed_differ_and_leave_the_global_generator() -> None:
    import torch

    state = torch.get_rng_state()
    texts = set()
    for _ in range(3):
        texts.add(tuple(row.text for row in filled(30, [0])))
    assert len(texts) == 3
    assert torch.equal(state, torch.get_rng_state())


# The adapter with the real weights


def played(cache: Path, scenario: Callable[[EmbeddedLanguageModel], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        llm = EmbeddedLanguageModel(cache, **settings)
        await llm.start()
        try:
            return await scenario(llm)
        finally:
            await llm.stop()

    return asyncio.run(main())


def question(n: int = 4, **more: Any) -> GenerationRequest:
    arguments = {"sampling": LINE, "prompt": "What is the capital of France?"} | more
    return GenerationRequest(num_samples=n, **arguments)


@pytest.mark.weights
def test_conversion_happens_once_and_leaves_nothing_else(llm_weights: Path) -> None:
    folder = converted_model(llm_weights)
    made_at = folder.stat().st_mtime_ns
    assert converted_model(llm_weights) == folder
    assert folder.stat().st_mtime_ns == made_at
    assert not [
        path for path in llm_weights.iterdir() if path.name.startswith(f".{folder.name}.") and path.is_dir()
    ]
    assert "quantization_config" not in (folder / "config.json").read_text()


@pytest.mark.weights
@pytest.mark.parametrize("messages", [None, (Message("user", "Say hello."),)], ids=["prompt", "chat"])
def test_total_logprob_equals_that_of_one_pass_over_prompt_and_answer(
    llm_weights: Path, messages: tuple[Message, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    sampling = Sampling(temperature=0.7, seed=3, max_tokens=12, stop=("\n",))
    request = question(6, sampling=sampling, messages=messages, **({"prompt": None} if messages else {}))

    async def scenario(llm: EmbeddedLanguageModel) -> None:
        kept: list[Continuation] = []
        as_output, sampler = embedded._output, llm._sampler
        monkeypatch.setattr(embedded, "_output", lambda row: kept.append(row) or as_output(row))
        generation = await llm.generate(request)
        assert sampler is not None
        prompt = llm._tokens(request)
        for row, draw in zip(kept, generation.draws, strict=True):
            with torch.inference_mode():
                logits = sampler._model(input_ids=torch.tensor([prompt + row.tokens])).logits[0]
            logprobs = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 : -1]
            expected = sum(float(logprobs[i, token]) for i, token in enumerate(row.tokens))
            assert draw.total_logprob == pytest.approx(expected, abs=2e-3)
            assert draw.num_tokens == len(row.tokens)
            assert draw.logprob == pytest.approx(expected / len(row.tokens), abs=2e-3)

    played(llm_weights, scenario)


@pytest.mark.weights
def test_port_behaviour_on_a_loaded_model(llm_weights: Path) -> None:
    long = Sampling(
        temperature=0, max_tokens=1000
    )  # greedy decoding after few-shot text ends only at the limit

    async def scenario(llm: EmbeddedLanguageModel) -> None:
        seeded = question(sampling=Sampling(temperature=1.0, seed=5, stop=("\n",)))
        assert (await llm.generate(seeded)).draws == (await llm.generate(seeded)).draws
        talk = question(
            2, prompt=None, messages=(Message("user", "Say hello."),), sampling=Sampling(max_tokens=3)
        )
        assert all(draw.truncated for draw in (await llm.generate(talk)).draws)
        assert llm.identity(talk).api == "chat"
        with pytest.raises(ModelNotFound):
            await llm.generate(question(model="other"))
        with pytest.raises(PromptTooLong, match="maximum context length is 2048 tokens") as refused:
            await llm.generate(question(prompt="word " * 3000))
        assert "in the prompt, " in refused.value.detail
        with pytest.raises(DeadlineExceeded):
            await llm.generate(question(sampling=long, deadline_s=0.3))
        await overload(llm, question(sampling=long))

    played(llm_weights, scenario, max_waiting=1)


async def overload(llm: EmbeddedLanguageModel, request: GenerationRequest) -> None:
    """One call runs, one waits, the third is refused; cancelling both frees the model at the next token."""
    tasks = [asyncio.create_task(llm.generate(request)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await llm.generate(question())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len((await llm.generate(question(2))).draws) == 2


def test_missing_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="weights fetch"):
        converted_model(tmp_path)


def test_not_started_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        llm = EmbeddedLanguageModel(tmp_path)
        with pytest.raises(LLMUnavailable):
            await llm.check()
        with pytest.raises(LLMUnavailable):
            await llm.generate(question())
        await llm.stop()
        await llm.stop()

    asyncio.run(main())
