"""The sampling loop on a toy model, and the LLM with its real weights."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from demo import model as model_module
from demo.model import Model, Token, converted_model
from service.llm.prompt import Sampling
from service.llm.weights import SMOLLM2, WeightsError, find
from tests.demo.toy import AFTER, ToyNetwork, toy_model

WEIGHTS = Path(__file__).parents[2] / "data" / "weights"


def drawn(
    count: int,
    prompt: list[int],
    network: ToyNetwork | None = None,
    *,
    eos: tuple[int, ...] = (),
    num_alternatives: int = 0,
    **changes: Any,
) -> list[list[Token]]:
    """Return the tokens of each answer."""
    sampling = Sampling(**({"temperature": 1.0, "max_tokens": 50, "stop": ("\n",), "seed": 1} | changes))
    answers: list[list[Token]] = [[] for _ in range(count)]
    for step in toy_model(network, eos).draw(prompt, count, sampling, num_alternatives):
        for token in step:
            answers[token.index].append(token)
    return answers


def text(answer: list[Token]) -> str:
    return "".join(token.piece for token in answer)


def first_tokens(count: int, prompt: list[int], **changes: Any) -> Counter[str]:
    return Counter(answer[0].token for answer in drawn(count, prompt, max_tokens=1, **changes))


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, {"b": 0.0900, "c": 0.2447, "\n": 0.6652}),
        ({"temperature": 0.5}, {"b": 0.0159, "c": 0.1173, "\n": 0.8668}),
        ({"top_k": 2}, {"c": 0.2689, "\n": 0.7311}),
        ({"top_p": 0.6}, {"\n": 1.0}),
        ({"top_p": 0.7}, {"c": 0.2689, "\n": 0.7311}),
        ({"temperature": 0.0}, {"\n": 1.0}),
    ],
)
def test_tokens_follow_the_requested_distribution(changes: dict[str, Any], shares: dict[str, float]) -> None:
    seen = first_tokens(1500, [1], **changes)
    assert set(seen) == set(shares)
    for token, share in shares.items():
        assert seen[token] / 1500 == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("changes", [{"temperature": 0.3}, {"temperature": 0.0}, {"top_p": 0.6}], ids=str)
def test_logprobs_are_of_the_models_distribution(changes: dict[str, Any]) -> None:
    for answer in drawn(20, [0], num_alternatives=2, **changes):
        last = 0
        for token in answer:  # including the newline that ended the answer
            letter = "abc\n".index(token.token)
            total = math.log(sum(map(math.exp, AFTER[last])))
            assert token.logprob == pytest.approx(AFTER[last][letter] - total, abs=1e-5)
            likeliest = sorted(AFTER[last], reverse=True)[:2]
            expected = [score - total for score in likeliest]
            assert [value for _, value in token.alternatives] == pytest.approx(expected, abs=1e-5)
            last = letter
        assert answer[-1].finish_reason == "length" or answer[-1].token == "\n"


def test_a_piece_waits_while_it_may_begin_a_stop_string() -> None:
    for answer in drawn(30, [0], stop=("aab",), max_tokens=12, eos=(3,)):
        whole = "".join(token.token for token in answer).rstrip("\n")
        assert text(answer) == whole.partition("aab")[0]
    [answer] = drawn(1, [2], stop=("ax",), max_tokens=1)  # an end that begins no stop string is sent
    assert text(answer) == "a"


def test_the_prompt_is_computed_once_and_ended_answers_leave_the_batch() -> None:
    network = ToyNetwork()
    drawn(20, [0, 1, 2, 0], network)
    assert network.batches[0] == (1, 4)
    widths = [rows for rows, _ in network.batches[1:]]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 20
    assert all(length == 1 for _, length in network.batches[1:])


def test_a_seed_repeats_the_answers_and_no_seed_leaves_the_global_generator() -> None:
    import torch

    state = torch.get_rng_state()
    assert drawn(5, [0], seed=7) == drawn(5, [0], seed=7)
    assert len({tuple(map(text, drawn(30, [0], seed=None))) for _ in range(3)}) == 3
    assert torch.equal(state, torch.get_rng_state())


def test_missing_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="weights fetch"):
        converted_model(tmp_path)


# The real weights


@pytest.fixture(scope="module")
def weights() -> Path:
    if find(SMOLLM2, WEIGHTS) is None:
        pytest.skip("the weights of the LLM are not fetched: make test")
    return WEIGHTS


@pytest.mark.weights
def test_conversion_happens_once_and_leaves_nothing_else(weights: Path) -> None:
    folder = converted_model(weights)
    made_at = folder.stat().st_mtime_ns
    assert converted_model(weights) == folder
    assert folder.stat().st_mtime_ns == made_at
    assert not [
        path for path in weights.iterdir() if path.name.startswith(f".{folder.name}.") and path.is_dir()
    ]
    assert "quantization_config" not in (folder / "config.json").read_text()


@pytest.mark.weights
def test_logprobs_equal_those_of_one_pass_over_prompt_and_answer(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(model_module, "PREFILL_TOKENS", 16)  # so that the prompt takes several passes
    model = Model.load(weights)
    model._network.float()
    turns = [{"role": "user", "content": "Say hello."}]
    for prompt in (model.tokens("Q: What is the capital of France?\nA:"), model.chat_tokens(turns)):
        ids: list[list[int]] = [[] for _ in range(6)]
        logprobs: list[list[float]] = [[] for _ in range(6)]
        choose = model._choose
        chosen: list[list[int]] = []
        with monkeypatch.context() as patch:
            patch.setattr(model, "_choose", lambda *args: chosen.append(choose(*args)) or chosen[-1])  # noqa: B023
            for step in model.draw(prompt, 6, Sampling(0.7, max_tokens=12, stop=("\n",), seed=3)):
                for place, token in enumerate(step):
                    ids[token.index].append(chosen[-1][place])
                    logprobs[token.index].append(token.logprob)
        for tokens, found in zip(ids, logprobs, strict=True):
            with torch.inference_mode():
                logits = model._network(input_ids=torch.tensor([prompt + tokens])).logits[0]
            expected = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 : -1]
            assert found == pytest.approx(
                [float(expected[i, token]) for i, token in enumerate(tokens)], abs=2e-3
            )


@pytest.mark.weights
def test_pieces_are_the_text_also_of_characters_of_several_tokens(weights: Path) -> None:
    model = Model.load(weights)
    prompt = model.chat_tokens([{"role": "user", "content": "Repeat this: \U0001f30d \U0001f30d \U0001f30d"}])
    tokens = [token for step in model.draw(prompt, 1, Sampling(0.5, max_tokens=24, seed=1)) for token in step]
    assert "\ufffd" in "".join(token.token for token in tokens)
    assert "\ufffd" not in "".join(token.piece for token in tokens[:-1])
