"""Log-probabilities of whole answers from a real vLLM server. `make test-vllm`."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest

from demo.data import PROMPT_TEMPLATE
from demo.model import Model
from demo.server import LLMServer
from service.llm.client import LLM
from service.llm.prompt import Api, GenerationRequest, Prompt, Sampling, Template
from service.llm.samples import Draw
from tests.e2e.conftest import WEIGHTS, VllmServer
from tests.support.in_thread import serving

pytestmark = pytest.mark.vllm
QUESTION = "What is the capital of France?"
LINE = Sampling(temperature=0.5, max_tokens=16, stop=("\n",))
# Chats have no stop string: a text may end with a newline or the turn, with different sums.
TURN = Sampling(temperature=0.5, max_tokens=16)
GREEDY = Sampling(temperature=0.0, max_tokens=16, stop=("\n",))


def drawn(url: str, *requests: GenerationRequest) -> list[tuple[Draw, ...]]:
    async def main() -> list[tuple[Draw, ...]]:
        llm = LLM(f"{url}/v1")
        await llm.start()
        try:
            return [(await llm.generate(request)).draws for request in requests]
        finally:
            await llm.stop()

    return asyncio.run(main())


def asked(api: Api) -> Prompt:
    return Template(text=PROMPT_TEMPLATE, api=api).prompt(QUESTION)


def by_text(draws: Sequence[Draw]) -> dict[tuple[str, int | None], list[float]]:
    """Return the sums of answers with the same text and number of tokens."""
    results = defaultdict(list)
    for draw in draws:
        assert draw.total_logprob is not None
        results[draw.text, draw.num_tokens].append(draw.total_logprob)
    return results


def endings(sums: Sequence[float]) -> int:
    """Return the number of sums that differ by more than rounding."""
    ordered = sorted(sums)
    return 1 + sum(after - before > 1e-3 for before, after in pairwise(ordered))


@pytest.mark.parametrize(("api", "sampling"), [("chat", TURN), ("completions", LINE)])
def test_equal_answers_have_equal_sums(vllm: VllmServer, api: Api, sampling: Sampling) -> None:
    (draws,) = drawn(vllm.url, GenerationRequest(40, sampling, asked(api)))
    assert len(draws) == 40
    for draw in draws:
        assert draw.total_logprob is not None and draw.num_tokens is not None and draw.logprob is not None
        assert math.isfinite(draw.total_logprob) and draw.total_logprob < 0
        assert 1 <= draw.num_tokens <= sampling.max_tokens
        assert draw.total_logprob == pytest.approx(draw.logprob * draw.num_tokens)
    most = max(by_text(draws).values(), key=len)
    assert len(most) > 3
    assert endings(most) <= 3  # a newline, or the end of the turn


def test_logprobs_match_those_of_the_demonstration(vllm: VllmServer) -> None:
    """Both count the end token, and use the model's own distribution."""
    request = GenerationRequest(1, GREEDY, asked("completions"))
    ((expected,),) = drawn(vllm.url, request)
    model = Model.load(WEIGHTS)
    model._network.float()  # vLLM is started with float32
    with serving(LLMServer(model).app()) as url:
        ((ours,),) = drawn(url, request)
    assert (ours.text, ours.num_tokens) == (expected.text, expected.num_tokens)
    assert ours.total_logprob == pytest.approx(expected.total_logprob, abs=0.02)
