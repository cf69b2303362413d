"""Log-probabilities of answers from servers on real sockets that return all, some or none of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from service.errors import LLMError
from service.llm import openai_server
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import Draw, GenerationRequest, Message, PromptShape, Sampling
from tests.support.openai_server import (
    MODEL,
    Behaviour,
    Exchange,
    OpenAIServer,
    answers,
    status,
)

APIS = pytest.mark.parametrize("api", ["chat", "completions"])
STREAMED = pytest.mark.parametrize("deadline_s", [None, 60.0], ids=["whole", "streamed"])


def ask(n: int = 2, **more: Any) -> GenerationRequest:
    return GenerationRequest(n, more.pop("sampling", Sampling()), **({"prompt": "Capital?"} | more))


def played(
    scenario: Callable[[OpenAIServer, HttpLanguageModel], Awaitable[Any]],
    *script: Behaviour,
    default: Behaviour | None = None,
    **settings: Any,
) -> Any:
    async def main() -> Any:
        async with OpenAIServer(script, default=default or telling([-1.0, -2.0])) as server:
            llm = HttpLanguageModel(server.url, **({"model": MODEL} | settings))
            try:
                return await asyncio.wait_for(scenario(server, llm), 60)
            finally:
                await llm.stop()

    return asyncio.run(main())


def drawn(request: GenerationRequest, behaviour: Behaviour, **settings: Any) -> tuple[Draw, ...]:
    async def scenario(_: OpenAIServer, llm: HttpLanguageModel) -> tuple[Draw, ...]:
        return (await llm.generate(request)).draws

    result: tuple[Draw, ...] = played(scenario, default=behaviour, **settings)
    return result


def form(exchange: Exchange, values: Any) -> dict[str, Any] | None:
    """Return log-probabilities in the format of the requested API."""
    if values is None:
        return None
    if not exchange.path.endswith("/chat/completions"):
        return {"tokens": [""] * len(values), "token_logprobs": list(values), "top_logprobs": None}
    return {
        "content": [{"token": "", "bytes": None, "logprob": value, "top_logprobs": []} for value in values]
    }


def telling(*per_choice: Any, text: str = "Paris", message: dict[str, Any] | None = None) -> Behaviour:
    """Answer with choices that cycle through these lists of log-probabilities, one token per chunk."""

    async def behave(exchange: Exchange) -> None:
        parts = [per_choice[i % len(per_choice)] for i in range(int(exchange.body["n"]))]
        if exchange.body.get("stream"):
            await exchange.start_stream()
            for i, values in enumerate(parts):
                await chunks(exchange, i, values, text)
            await exchange.event("[DONE]")
            exchange.writer.close()
            return
        chat = exchange.path.endswith("/chat/completions")
        message_: dict[str, Any] = {"message": message or {"content": text}} if chat else {"text": text}
        choices = [
            {"index": i, "finish_reason": "stop", "logprobs": form(exchange, values), **message_}
            for i, values in enumerate(parts)
        ]
        await exchange.send(200, {"model": MODEL, "choices": choices})

    return behave


async def chunks(exchange: Exchange, index: int, values: Sequence[Any] | None, text: str) -> None:
    """Send the chunks of one choice: a role without tokens, the text, and the end without text."""
    chat = exchange.path.endswith("/chat/completions")

    async def chunk(piece: str, token_logprobs: Sequence[Any] | None, finish: str | None = None) -> None:
        message: dict[str, Any] = {"delta": {"content": piece}} if chat else {"text": piece}
        choice = {
            "index": index,
            "finish_reason": finish,
            "logprobs": form(exchange, token_logprobs),
            **message,
        }
        await exchange.event({"model": MODEL, "choices": [choice]})

    await chunk("", None)
    await chunk(text, None if values is None else values[:1])
    for value in (values or [])[1:-1]:
        await chunk("", [value])
    await chunk("", None if values is None else values[1:][-1:], "stop")


def streaming(*deltas: dict[str, Any]) -> Behaviour:
    """Stream one choice in these chunks; each has a delta and the log-probabilities in `told`."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start_stream()
        for i, delta_ in enumerate(deltas):
            delta = {name: value for name, value in delta_.items() if name != "told"}
            finish = "stop" if i == len(deltas) - 1 else None
            token_logprobs = form(exchange, delta_.get("told"))
            choice = {"index": 0, "finish_reason": finish, "logprobs": token_logprobs, "delta": delta}
            await exchange.event({"model": MODEL, "choices": [choice]})
        await exchange.event("[DONE]")
        exchange.writer.close()

    return behave


# Requests


# Responses


@APIS
@STREAMED
def test_answer_has_total_logprob_and_token_count(api: str, deadline_s: float | None) -> None:
    draw, other = drawn(ask(deadline_s=deadline_s), telling([-1.0, -2.0, -0.5], [-0.25]), api=api)
    assert (draw.text, draw.total_logprob, draw.num_tokens) == ("Paris", -3.5, 3)
    assert draw.logprob == pytest.approx(-3.5 / 3)
    assert (other.total_logprob, other.num_tokens, other.logprob) == (-0.25, 1, -0.25)


@APIS
@STREAMED
@pytest.mark.parametrize("values", [[-1.0, None], [-1.0, "-2"], [-1.0, 1e300]])
def test_token_without_logprob_removes_the_evidence(
    api: str, deadline_s: float | None, values: list[Any]
) -> None:
    result = drawn(ask(deadline_s=deadline_s), telling(values, [-1.0, -2.0]), api=api)
    assert (result[0].total_logprob, result[0].num_tokens, result[0].logprob) == (None, None, -1.0)
    assert result[1].total_logprob == -3.0


@pytest.mark.parametrize(("value", "total"), [(1e-7, 1e-7), (0.009, 0.009), (0.02, None), (0.9, None)])
def test_total_above_zero_is_accepted_only_as_rounding(value: float, total: float | None) -> None:
    (draw,) = drawn(ask(1), telling([value]))
    assert draw.total_logprob == total


@pytest.mark.parametrize("logprobs", [None, {}, {"content": [{}]}, {"token_logprobs": [None]}])
@APIS
def test_missing_logprobs_remove_the_evidence_but_not_the_answer(api: str, logprobs: Any) -> None:
    message = {"message": {"content": "Paris"}} if api == "chat" else {"text": "Paris"}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": logprobs, **message}
    (result,) = drawn(ask(1), status(200, {"model": MODEL, "choices": [choice]}), api=api)
    assert result == Draw("Paris")


# Answers that are a part of the generated text


@STREAMED
def test_answer_regex_removes_the_evidence(deadline_s: float | None) -> None:
    shape = PromptShape(answer_regex=r"(\w+)")
    (result,) = drawn(ask(1, deadline_s=deadline_s), telling([-1.0, -2.0]), shape=shape)
    assert result == Draw("Paris", logprob=-1.5, num_tokens=2)


@STREAMED
@pytest.mark.parametrize("text", ["<think>Hm</think>Paris", "Hm</think>Paris"])
def test_reasoning_in_the_text_removes_the_evidence(text: str, deadline_s: float | None) -> None:
    (result,) = drawn(ask(1, deadline_s=deadline_s), telling([-1.0, -2.0], text=text))
    assert result == Draw("Paris", logprob=-1.5, num_tokens=2)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Paris", "reasoning": "Hm"},
        {"content": "Paris", "reasoning_content": "Hm"},
        {"content": "Paris", "tool_calls": [{"id": "1"}]},
        {"content": None},
    ],
)
def test_text_removed_by_the_server_removes_the_evidence(message: dict[str, Any]) -> None:
    (draw,) = drawn(ask(1), telling([-1.0, -2.0], message=message))
    assert (draw.text, draw.total_logprob) == (message["content"] or "", None)
    assert draw.logprob == -1.5


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
def test_each_chunk_of_a_stream_has_its_own_tokens(deltas: list[dict[str, Any]], total: float | None) -> None:
    (draw,) = drawn(ask(1, deadline_s=60.0), streaming(*deltas))
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
def test_refusal_of_logprobs_is_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    refusal = status(code, {"error": {"message": said}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        for _ in range(2):
            assert totals((await llm.generate(ask())).draws) == [None, None]
        assert asked(server) == [True, None, None]
        server.default = telling([-1.0, -2.0])
        monkeypatch.setattr(openai_server, "QUIRK_KEPT_S", -1.0)
        assert totals((await llm.generate(ask())).draws) == [-3.0, -3.0]

    played(scenario, refusal, default=answers())


def test_chat_without_logprobs_is_asked_twice_then_not_for_a_while() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        for _ in range(3):
            assert totals((await llm.generate(ask())).draws) == [None, None]
        assert asked(server) == [True, True, None]

    played(scenario, default=answers())


def test_empty_answers_do_not_count_as_missing_logprobs() -> None:
    """Some servers omit the end token."""

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        for _ in range(4):
            await llm.generate(ask())
        assert asked(server) == [True] * 4

    played(scenario, default=answers(""))


def test_refusals_are_remembered_per_api() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        turns = (Message("user", "Capital?"),)
        for _ in range(2):
            await llm.generate(ask())
        draws = (await llm.generate(ask(prompt=None, messages=turns))).draws
        assert asked(server) == [1, None, True]
        assert totals(draws) == [-3.0, -3.0]

    async def chat_alone(exchange: Exchange) -> None:
        chat = exchange.path.endswith("/chat/completions")
        await (telling([-1.0, -2.0]) if chat else answers())(exchange)

    played(scenario, default=chat_alone, api="completions")


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
        await exchange.start_stream()
        choice.pop("message", None)
        await exchange.event({"model": MODEL, "choices": [choice]})
        await exchange.event("[DONE]")
        exchange.writer.close()

    return behave


def alternatives_asked(deadline_s: float | None = None) -> GenerationRequest:
    return ask(1, sampling=Sampling(temperature=0, max_tokens=1), num_alternatives=5, deadline_s=deadline_s)


@APIS
@STREAMED
def test_top_first_tokens_are_returned_on_request(api: str, deadline_s: float | None) -> None:
    body = {"Yes": -0.2, "No": -2, "So": None}
    (result,) = drawn(alternatives_asked(deadline_s), with_alternatives(body, {"!": -1.0}), api=api)
    assert result.first_tokens == {"Yes": -0.2, "No": -2.0}


@pytest.mark.parametrize("alternatives", [None, [], "Yes", [None], [{"token": 3, "logprob": -1}]])
def test_missing_alternatives_are_none(alternatives: Any) -> None:
    async def behave(exchange: Exchange) -> None:
        content = [{"token": "Yes", "logprob": -0.1, "top_logprobs": alternatives}]
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": "Yes"}}
        await exchange.send(200, {"model": MODEL, "choices": [choice | {"logprobs": {"content": content}}]})

    (result,) = drawn(alternatives_asked(), behave)
    assert result.first_tokens == {}


@APIS
def test_refused_alternatives_do_not_affect_other_answers(api: str) -> None:
    refusal = status(400, {"error": {"message": "at most 1 logprobs may be asked for"}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> tuple[Draw, ...]:
        with pytest.raises(LLMError):
            await llm.generate(alternatives_asked())
        return (await llm.generate(ask(1))).draws

    (draw,) = played(scenario, refusal, default=telling([-1.0]), api=api)
    assert draw.total_logprob == -1.0
