"""Log-probabilities of answers from servers on real sockets that return all, some or none of them."""

from collections.abc import Sequence
from typing import Any

import pytest

from service.errors import LLMError
from service.llm.prompt import Api, GenerationRequest, Sampling, Template
from service.llm.samples import Draw
from service.llm.wire import Choice
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, status
from tests.unit.llm.test_llm_http import playing

APIS = pytest.mark.parametrize("api", ["chat", "completions"])


def ask(n: int = 2, api: Api = "chat", **more: Any) -> GenerationRequest:
    return GenerationRequest(
        n, more.pop("sampling", Sampling()), Template(api=api).prompt("Capital?"), **more
    )


async def drawn(request: GenerationRequest, behaviour: Behaviour, **settings: Any) -> tuple[Draw, ...]:
    async with playing(default=behaviour, **settings) as (_, llm):
        return (await llm.generate(request)).draws


def form(exchange: Exchange, values: Any) -> dict[str, Any] | None:
    """Return log-probabilities in the format of the requested API."""
    if values is None:
        return None
    if not exchange.path.endswith("/chat/completions"):
        return {"tokens": ["token_id:1"] * len(values), "token_logprobs": list(values), "top_logprobs": None}
    return {
        "content": [
            {"token": "token_id:1", "bytes": None, "logprob": value, "top_logprobs": []} for value in values
        ]
    }


def telling(*per_choice: Any, text: str = "Paris") -> Behaviour:
    """Answer with choices that cycle through these lists of log-probabilities."""

    async def behave(exchange: Exchange) -> None:
        parts = [per_choice[i % len(per_choice)] for i in range(int(exchange.body["n"]))]
        chat = exchange.path.endswith("/chat/completions")
        message_: dict[str, Any] = {"message": {"content": text}} if chat else {"text": text}
        choices = [
            {"index": i, "finish_reason": "stop", "logprobs": form(exchange, values), **message_}
            for i, values in enumerate(parts)
        ]
        await exchange.send(200, {"model": MODEL, "choices": choices})

    return behave


@APIS
@pytest.mark.parametrize("values", [[-1.0, None], [-1.0, "-2"], [-1.0, 1e300]])
async def test_token_without_logprob_removes_the_evidence(api: Api, values: list[Any]) -> None:
    result = await drawn(ask(api=api), telling(values, [-1.0, -2.0]))
    assert (result[0].total_logprob, result[0].num_tokens, result[0].logprob) == (None, None, -1.0)
    assert result[1].total_logprob == -3.0


# Answers that are a part of the generated text


@pytest.mark.parametrize(
    ("chunks", "total"),
    [
        ([({"role": "assistant", "content": ""}, []), ({"content": "Paris"}, [-1, -2]), ({}, [])], -3.0),
        ([({"content": "Pa"}, [-1]), ({"content": "ris"}, [-2]), ({}, [-4])], -7.0),
        ([({"content": ""}, [-8]), ({"content": "Paris"}, [-1]), ({}, [])], -9.0),
        ([({"content": "Pa"}, [-1]), ({"content": "ris"}, [])], None),
        ([({"content": "Pa"}, []), ({"content": "ris"}, [-1])], None),
        ([({"reasoning": "Hm"}, []), ({"content": "Paris"}, [-1])], None),
        ([({"reasoning_content": "Hm"}, [-1]), ({"content": "Paris"}, [-1])], None),
    ],
)
def test_each_chunk_of_a_stream_has_its_own_tokens(
    chunks: list[tuple[dict[str, Any], list[float]]], total: float | None
) -> None:
    """The drop-in reads streams of the caller's answer."""
    choice = Choice()
    for delta, values in chunks:
        tokens = [{"token": "token_id:1", "logprob": value} for value in values]
        choice.take({"index": 0, "delta": delta, "logprobs": {"content": tokens}})
    assert (choice.draw().text, choice.draw().total_logprob) == ("Paris", total)


# Remembered behaviour of servers


def asked(server: OpenAIServer) -> list[Any]:
    return [body.get("logprobs") for body in server.bodies]


def totals(draws: Sequence[Draw]) -> list[float | None]:
    return [draw.total_logprob for draw in draws]


async def test_missing_logprobs_are_asked_for_again_after_a_while() -> None:
    async with playing(default=answers()) as (server, llm):
        for _ in range(3):
            assert totals((await llm.generate(ask())).draws) == [None, None]
        assert asked(server) == [True, True, None]
        server.default = telling([-1.0, -2.0])
        llm.learned.kept_s = -1.0
        assert totals((await llm.generate(ask())).draws) == [-3.0, -3.0]


async def test_empty_answers_do_not_count_as_missing_logprobs() -> None:
    """Some servers omit the end token."""

    async with playing(default=answers("")) as (server, llm):
        for _ in range(4):
            await llm.generate(ask())
        assert asked(server) == [True] * 4


@pytest.mark.parametrize("empty", ["<think>cut in its thought", " "])
async def test_an_empty_answer_does_not_hide_missing_logprobs(empty: str) -> None:
    async with playing(default=answers("Paris", empty)) as (server, llm):
        for _ in range(3):
            await llm.generate(ask())
        assert asked(server) == [True, True, None]


# Top first tokens


def with_alternatives(*per_token: dict[str, Any]) -> Behaviour:
    """Answer "Yes" with alternatives for each of its tokens."""

    async def behave(exchange: Exchange) -> None:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if exchange.path.endswith("/chat/completions"):
            listed = [[{"token": t, "logprob": v} for t, v in item.items()] for item in per_token]
            content = [{"token": "token_id:1", "logprob": -0.1, "top_logprobs": item} for item in listed]
            choice |= {"message": {"content": "Yes"}, "logprobs": {"content": content}}
        else:
            values = [-0.1] * len(per_token)
            choice |= {"text": "Yes", "logprobs": {"token_logprobs": values, "top_logprobs": list(per_token)}}
        await exchange.send(200, {"model": MODEL, "choices": [choice]})

    return behave


def asking(api: Api = "chat") -> GenerationRequest:
    return ask(1, api, sampling=Sampling(temperature=0, max_tokens=1), num_alternatives=5)


@APIS
async def test_top_first_tokens_are_returned_on_request(api: Api) -> None:
    body = {"Yes": -0.2, "No": -2, "So": None}
    (result,) = await drawn(asking(api), with_alternatives(body, {"!": -1.0}))
    assert result.first_tokens == {"Yes": -0.2, "No": -2.0}


async def test_alternatives_are_never_left_out() -> None:
    refusal = status(400, {"error": {"message": "no"}})
    async with playing(default=refusal) as (server, llm):
        with pytest.raises(LLMError):
            await llm.generate(asking())
        assert all(body["top_logprobs"] == 5 for body in server.bodies)


async def test_alternatives_are_asked_for_after_draws_without_log_probabilities() -> None:
    """Draws have taught the last dialect, which has no log-probabilities."""

    async def one_answer(exchange: Exchange) -> None:
        told = with_alternatives({"Yes": -0.2}) if exchange.body.get("n") == 1 else refusal
        await (told if "n" in exchange.body else answers())(exchange)

    refusal = status(400, {"error": {"message": "no"}})
    async with playing(default=one_answer) as (server, llm):
        await llm.generate(ask(3))
        assert (await llm.generate(asking())).draws[0].first_tokens == {"Yes": -0.2}
        server.default = draws_refusing(refusal)
        with pytest.raises(LLMError):
            await llm.generate(asking())
        await llm.generate(ask(3))
        assert "logprobs" not in server.bodies[-1]


def draws_refusing(refusal: Behaviour) -> Behaviour:
    """Refuse calls with log-probabilities."""

    async def behave(exchange: Exchange) -> None:
        await (refusal if "logprobs" in exchange.body else answers())(exchange)

    return behave


@pytest.mark.parametrize("alternatives", [None, [], "Yes", [None], [{"token": 3, "logprob": -1}]])
async def test_missing_alternatives_are_none(alternatives: Any) -> None:
    async def behave(exchange: Exchange) -> None:
        content = [{"token": "Yes", "logprob": -0.1, "top_logprobs": alternatives}]
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": "Yes"}}
        await exchange.send(200, {"model": MODEL, "choices": [choice | {"logprobs": {"content": content}}]})

    (result,) = await drawn(asking(), behave)
    assert (result.first_tokens, result.total_logprob) == ({}, -0.1)


@pytest.mark.parametrize("bad", [None, "No", {"token": "No", "logprob": "?"}])
def test_a_malformed_alternative_leaves_the_others(bad: Any) -> None:
    listed = [{"token": "Yes", "logprob": -0.1}, bad]
    content = [{"token": "Yes", "logprob": -0.1, "top_logprobs": listed}]
    choice = Choice()
    choice.take({"message": {"content": "Yes"}, "logprobs": {"content": content}})
    assert (choice.draw().first_tokens, choice.draw().total_logprob) == ({"Yes": -0.1}, -0.1)
