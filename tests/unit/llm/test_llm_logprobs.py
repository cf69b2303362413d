"""Log-probabilities of answers from servers on real sockets that return all, some or none of them."""

from collections.abc import Sequence
from typing import Any

import pytest

from service.llm import openai_server
from service.llm.port import Draw, GenerationRequest, Sampling
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, status
from tests.unit.llm.test_llm_http import playing

APIS = pytest.mark.parametrize("api", ["chat", "completions"])
STREAMED = pytest.mark.parametrize("deadline_s", [None, 60.0], ids=["whole", "streamed"])


def ask(n: int = 2, **more: Any) -> GenerationRequest:
    return GenerationRequest(n, more.pop("sampling", Sampling()), **({"prompt": "Capital?"} | more))


async def drawn(request: GenerationRequest, behaviour: Behaviour, **settings: Any) -> tuple[Draw, ...]:
    async with playing(default=behaviour, **settings) as (_, llm):
        return (await llm.generate(request)).draws


def form(exchange: Exchange, values: Any) -> dict[str, Any] | None:
    """Return log-probabilities in the format of the requested API."""
    if values is None:
        return None
    if not exchange.path.endswith("/chat/completions"):
        return {"tokens": [""] * len(values), "token_logprobs": list(values), "top_logprobs": None}
    return {
        "content": [{"token": "", "bytes": None, "logprob": value, "top_logprobs": []} for value in values]
    }


def telling(*per_choice: Any, text: str = "Paris") -> Behaviour:
    """Answer with choices that cycle through these lists of log-probabilities, one token per chunk."""

    async def behave(exchange: Exchange) -> None:
        parts = [per_choice[i % len(per_choice)] for i in range(int(exchange.body["n"]))]
        if exchange.body.get("stream"):
            await exchange.stream(
                *(chunk for i, values in enumerate(parts) for chunk in chunks(exchange, i, values, text))
            )
            return
        chat = exchange.path.endswith("/chat/completions")
        message_: dict[str, Any] = {"message": {"content": text}} if chat else {"text": text}
        choices = [
            {"index": i, "finish_reason": "stop", "logprobs": form(exchange, values), **message_}
            for i, values in enumerate(parts)
        ]
        await exchange.send(200, {"model": MODEL, "choices": choices})

    return behave


def chunks(exchange: Exchange, index: int, values: Sequence[Any], text: str) -> list[dict[str, Any]]:
    """Return the chunks of one choice: a role without tokens, the text, and the end without text."""
    chat = exchange.path.endswith("/chat/completions")

    def chunk(piece: str, token_logprobs: Sequence[Any] | None, finish: str | None = None) -> dict[str, Any]:
        message = {"delta": {"content": piece}} if chat else {"text": piece}
        choice = {"index": index, "finish_reason": finish, "logprobs": form(exchange, token_logprobs)}
        return {"model": MODEL, "choices": [choice | message]}

    return [chunk("", None), chunk(text, values[:1]), chunk("", values[1:], "stop")]


def streaming(*deltas: dict[str, Any]) -> Behaviour:
    """Stream one choice in these chunks; each has a delta and the log-probabilities in `told`."""

    async def behave(exchange: Exchange) -> None:
        choices = []
        for delta_ in deltas:
            delta = {name: value for name, value in delta_.items() if name != "told"}
            token_logprobs = form(exchange, delta_.get("told"))
            choices.append({"index": 0, "logprobs": token_logprobs, "delta": delta})
        choices[-1]["finish_reason"] = "stop"
        await exchange.stream(*({"model": MODEL, "choices": [choice]} for choice in choices))

    return behave


@APIS
@STREAMED
@pytest.mark.parametrize("values", [[-1.0, None], [-1.0, "-2"], [-1.0, 1e300]])
async def test_token_without_logprob_removes_the_evidence(
    api: str, deadline_s: float | None, values: list[Any]
) -> None:
    result = await drawn(ask(deadline_s=deadline_s), telling(values, [-1.0, -2.0]), api=api)
    assert (result[0].total_logprob, result[0].num_tokens, result[0].logprob) == (None, None, -1.0)
    assert result[1].total_logprob == -3.0


# Answers that are a part of the generated text


@pytest.mark.parametrize(
    ("deltas", "total"),
    [
        ([{"role": "assistant", "content": ""}, {"content": "Paris", "told": [-1, -2]}, {}], -3.0),
        ([{"content": "Pa", "told": [-1]}, {"content": "ris", "told": [-2]}, {"told": [-4]}], -7.0),
        ([{"content": "", "told": [-8]}, {"content": "Paris", "told": [-1]}, {}], -9.0),
        ([{"content": "Pa", "told": [-1]}, {"content": "ris"}, {}], None),
        ([{"content": "Pa"}, {"content": "ris", "told": [-1]}, {}], None),
        ([{"reasoning": "Hm"}, {"content": "Paris", "told": [-1]}, {}], None),
        ([{"reasoning_content": "Hm", "told": [-1]}, {"content": "Paris", "told": [-1]}, {}], None),
    ],
)
async def test_each_chunk_of_a_stream_has_its_own_tokens(
    deltas: list[dict[str, Any]], total: float | None
) -> None:
    (draw,) = await drawn(ask(1, deadline_s=60.0), streaming(*deltas))
    assert (draw.text, draw.total_logprob) == ("Paris", total)


# Remembered behaviour of servers


def asked(server: OpenAIServer) -> list[Any]:
    return [body.get("logprobs") for body in server.bodies]


def totals(draws: Sequence[Draw]) -> list[float | None]:
    return [draw.total_logprob for draw in draws]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (400, "Unrecognized request argument supplied: logprobs"),
        (403, "Logprobs is not enabled for this model"),
        (500, "logprobs"),
    ],
)
async def test_refusal_of_logprobs_is_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    refusal = status(code, {"error": {"message": said}})

    async with playing(refusal, default=answers()) as (server, llm):
        for _ in range(2):
            assert totals((await llm.generate(ask())).draws) == [None, None]
        assert asked(server) == [True, None, None]
        server.default = telling([-1.0, -2.0])
        monkeypatch.setattr(openai_server, "QUIRK_KEPT_S", -1.0)
        assert totals((await llm.generate(ask())).draws) == [-3.0, -3.0]


async def test_empty_answers_do_not_count_as_missing_logprobs() -> None:
    """Some servers omit the end token."""

    async with playing(default=answers("")) as (server, llm):
        for _ in range(4):
            await llm.generate(ask())
        assert asked(server) == [True] * 4


# Top first tokens


def with_alternatives(*per_token: dict[str, Any]) -> Behaviour:
    """Answer "Yes" with alternatives for each of its tokens."""

    async def behave(exchange: Exchange) -> None:
        if exchange.path.endswith("/chat/completions"):
            listed = [[{"token": t, "logprob": v} for t, v in item.items()] for item in per_token]
            content = [{"token": "", "logprob": -0.1, "top_logprobs": item} for item in listed]
            message = {"content": "Yes"}
            choice = {"message": message, "delta": message, "logprobs": {"content": content}}
        else:
            values = [-0.1] * len(per_token)
            choice = {"text": "Yes", "logprobs": {"token_logprobs": values, "top_logprobs": list(per_token)}}
        choice |= {"index": 0, "finish_reason": "stop"}
        if not exchange.body.get("stream"):
            await exchange.send(200, {"model": MODEL, "choices": [choice]})
            return
        choice.pop("message", None)
        await exchange.stream({"model": MODEL, "choices": [choice]})

    return behave


def alternatives_asked(deadline_s: float | None = None) -> GenerationRequest:
    return ask(1, sampling=Sampling(temperature=0, max_tokens=1), num_alternatives=5, deadline_s=deadline_s)


@APIS
@STREAMED
async def test_top_first_tokens_are_returned_on_request(api: str, deadline_s: float | None) -> None:
    body = {"Yes": -0.2, "No": -2, "So": None}
    (result,) = await drawn(alternatives_asked(deadline_s), with_alternatives(body, {"!": -1.0}), api=api)
    assert result.first_tokens == {"Yes": -0.2, "No": -2.0}


@pytest.mark.parametrize("alternatives", [None, [], "Yes", [None], [{"token": 3, "logprob": -1}]])
async def test_missing_alternatives_are_none(alternatives: Any) -> None:
    async def behave(exchange: Exchange) -> None:
        content = [{"token": "Yes", "logprob": -0.1, "top_logprobs": alternatives}]
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": "Yes"}}
        await exchange.send(200, {"model": MODEL, "choices": [choice | {"logprobs": {"content": content}}]})

    (result,) = await drawn(alternatives_asked(), behave)
    assert result.first_tokens == {}
