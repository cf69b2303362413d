"""The HTTP adapter with a scripted server on a real socket."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from service.errors import (
    DeadlineExceeded,
    EigencalError,
    LLMBadResponse,
    LLMError,
    LLMUnavailable,
    ModelNotFound,
    Overloaded,
)
from service.llm import wire
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Sampling, Template
from service.llm.queue import CallQueue
from service.llm.samples import Generation
from tests.support.openai_server import (
    MODEL,
    Behaviour,
    Exchange,
    OpenAIServer,
    after,
    answers,
    drop,
    endless,
    hang,
    raw,
    status,
)

PROMPT = "What is the capital of France?"


def ask(n: int = 4, **more: Any) -> GenerationRequest:
    sampling, prompt = more.pop("sampling", Sampling()), Template().prompt(PROMPT)
    return GenerationRequest(num_samples=n, sampling=sampling, **({"prompt": prompt} | more))


@asynccontextmanager
async def playing(
    *script: Behaviour, server: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[OpenAIServer, LLM]]:
    """Yield a server that follows the script, and then `default`, with a client of it."""
    default = settings.pop("default", None) or answers()
    async with OpenAIServer(script, default=default, **(server or {})) as fake, asyncio.timeout(60):
        llm = LLM(fake.url, **({"model": MODEL} | settings))
        await llm.start()
        try:
            yield fake, llm
        finally:
            await llm.stop()


async def generated(
    request: GenerationRequest, *script: Behaviour, **more: Any
) -> tuple[Generation, list[dict[str, Any]]]:
    async with playing(*script, **more) as (server, llm):
        return await llm.generate(request), server.bodies


async def failure(request: GenerationRequest, *script: Behaviour, **more: Any) -> EigencalError:
    with pytest.raises(EigencalError) as caught:
        await generated(request, *script, **more)
    return caught.value


def texts(generation: Generation) -> list[str]:
    return [draw.text for draw in generation.draws]


# Requests


async def test_one_call_with_n_and_every_sampling_parameter() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, max_tokens=9, stop=("\n",))
    generation, bodies = await generated(ask(4, sampling=sampling))
    assert texts(generation) == ["Paris", "Lyon", "Paris", "Lyon"]
    assert bodies == [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": PROMPT}],
            "n": 4,
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 5,
            "max_tokens": 9,
            "stop": ["\n"],
            "logprobs": True,
        }
    ]
    assert generation.model == MODEL
    assert (generation.usage.prompt_tokens, generation.usage.completion_tokens) == (7, 8)


def test_neighbouring_seeds_do_not_overlap() -> None:
    seeds = [wire.spread_seed(seed, call) for seed in range(20) for call in range(2)]
    assert seeds == [wire.spread_seed(seed, call) for seed in range(20) for call in range(2)]
    gaps = [b - a for a, b in zip(sorted(seeds), sorted(seeds)[1:], strict=False)]
    assert min(gaps) > 256


# Responses


async def test_reasoning_is_removed() -> None:
    message = {"role": "assistant", "content": "Paris", "reasoning_content": "Hm", "reasoning": "Hm"}
    choices = [
        {"index": 0, "finish_reason": "stop", "message": message},
        {"index": 1, "finish_reason": "stop", "message": {"content": "<think>Hm</think> Lyon"}},
        {"index": 2, "finish_reason": "length", "message": {"content": None, "reasoning": "Hm"}},
    ]
    generation, _ = await generated(ask(3), status(200, {"choices": choices}))
    assert [(draw.text, draw.truncated) for draw in generation.draws] == [
        ("Paris", False),
        ("Lyon", False),
        ("", True),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"<html>"),
        status(200, {}),
        status(200, {"choices": []}),
        status(200, {"choices": [{"message": {"content": 7}}]}),
        status(200, {"choices": [{"finish_reason": "abort", "message": {"content": "cut"}}]}),
        status(200, {"choices": "none"}),
    ],
)
async def test_other_response_than_a_completion_is_an_error(answer: Behaviour) -> None:
    assert isinstance(await failure(ask(), answer), LLMBadResponse)


# Servers that ignore or refuse


async def test_missing_answers_are_requested_in_parallel_and_the_limit_remembered() -> None:
    async with playing(default=answers(at_most=1)) as (server, llm):
        first = await llm.generate(ask(5))
        assert len(first.draws) == 5
        assert [body["n"] for body in server.bodies] == [5, 1, 1, 1, 1]
        assert first.usage.prompt_tokens == 5 * 7
        await llm.generate(ask(5))
        assert [body["n"] for body in server.bodies[5:]] == [1] * 5


def refusing(name: str, code: int = 400) -> Behaviour:
    """Refuse calls with this parameter, in words that do not name it."""

    async def behave(exchange: Exchange) -> None:
        refusal = status(code, {"error": {"message": "This request cannot be served."}})
        await (refusal if name in exchange.body else answers())(exchange)

    return behave


@pytest.mark.parametrize("code", [400, 403, 422, 500])
@pytest.mark.parametrize(
    ("name", "num_refused", "omitted"),
    [
        ("top_k", 1, ("top_k",)),
        ("max_tokens", 1, ("top_k",)),
        ("top_p", 2, ("top_k", "top_p")),
        ("logprobs", 2, ("top_k", "top_p")),
        ("n", 2, ("top_k", "top_p")),
    ],
)
async def test_refused_call_is_repeated_in_other_dialects_and_the_accepted_one_remembered(
    name: str, num_refused: int, omitted: tuple[str, ...], code: int
) -> None:
    async with playing(default=refusing(name, code)) as (server, llm):
        for _ in range(2):
            generation = await llm.generate(ask(3))
            assert (len(generation.draws), generation.omitted) == (3, omitted)
        # A 500 may pass, so the same call is repeated once.
        assert sum(name in body for body in server.bodies) == num_refused + (code == 500)
        limits = [{"max_tokens", "max_completion_tokens"} & body.keys() for body in server.bodies]
        assert all(len(limit) == 1 for limit in limits)


async def test_transient_failure_is_not_taken_for_a_refused_parameter() -> None:
    failed = status(500, {"error": {"message": "internal error"}})
    async with playing(failed) as (server, llm):
        assert (await llm.generate(ask(3))).omitted == ()
        assert server.bodies[0] == server.bodies[1]


async def test_a_server_that_has_taken_such_calls_fails_and_does_not_refuse() -> None:
    failed = status(500, {"error": {"message": "out of memory"}})
    async with playing(answers(), failed, failed) as (server, llm):
        assert (await llm.generate(ask(3))).omitted == ()
        with pytest.raises(LLMError, match="status 500"):
            await llm.generate(ask(3))
        assert (await llm.generate(ask(3))).omitted == ()
        assert ["top_k" in body for body in server.bodies] == [True] * 4


async def test_parameter_with_an_effect_is_never_left_out() -> None:
    error = await failure(ask(3, sampling=Sampling(top_k=5)), default=refusing("top_k"))
    assert isinstance(error, LLMError)


async def test_discovered_model_is_requested_again_when_missing() -> None:
    gone = status(404, {"error": {"message": f"The model `{MODEL}` does not exist."}})

    async with playing(gone, model=None) as (server, llm):
        server.models = ("another",)
        with pytest.raises(ModelNotFound):
            await llm.generate(ask())
        await llm.generate(ask())
        assert [body["model"] for body in server.bodies] == [MODEL, "another"]


async def test_observed_server_limits_expire() -> None:
    async with playing(default=answers(at_most=1)) as (server, llm):
        await llm.generate(ask(3))
        server.default = answers()
        llm.learned.kept_s = -1.0
        await llm.generate(ask(3))
        assert [body["n"] for body in server.bodies] == [3, 1, 1, 3]


async def test_call_that_is_refused_in_each_dialect_records_no_quirk() -> None:
    """The server refuses something else, such as the prompt."""
    refusal = status(400, {"error": {"message": "too long"}})
    async with playing(*[refusal] * 3) as (server, llm):
        with pytest.raises(LLMError, match="400"):
            await llm.generate(ask(3))
        assert (await llm.generate(ask(3))).omitted == ()
        assert server.bodies[3] == server.bodies[0]


# Endless and compressed responses


async def test_too_long_response_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 2**20)
    endless_ = endless(b": " + b"x" * 2**16, {"content-type": "application/json"})
    async with playing(default=endless_) as (server, llm):
        with pytest.raises(LLMBadResponse, match="longer"):
            await llm.generate(ask())
        assert server.sent < 2**26


async def test_endless_refusal_is_reported_without_its_text() -> None:
    refusal = endless(b"too bad " * 2**13, {"content-type": "application/json"}, code=401)
    error = await failure(ask(), refusal)
    assert isinstance(error, LLMError)
    assert (error.extra["llm_status"], error.extra["llm_message"]) == (401, "")


async def test_stopped_client_makes_no_calls() -> None:
    async with playing() as (_, llm):
        await llm.stop()
        with pytest.raises(LLMUnavailable, match="cannot be reached"):
            await llm.generate(ask())


async def test_unrequested_compression_is_decoded() -> None:
    answer = b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}'
    packed = status(200, gzip.compress(answer), {"content-encoding": "gzip"})
    assert texts((await generated(ask(1), packed))[0]) == ["Paris"]
    broken = status(200, answer, {"content-encoding": "gzip"})
    assert isinstance(await failure(ask(1), broken), LLMUnavailable)


# Who answers


async def test_answers_of_two_models_are_never_mixed() -> None:
    turn = iter(range(99))

    async def balanced(exchange: Exchange) -> None:
        await answers(at_most=1, model=f"m{next(turn) % 2}")(exchange)

    error = await failure(ask(3), default=balanced)
    assert isinstance(error, LLMBadResponse)
    assert "two models" in error.detail


# Errors and retries


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "50"}, 50),
        ({"Retry-After": "86400"}, 60),
        ({"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, 60),
        ({"Retry-After-Ms": "30000"}, 30),
        ({"Retry-After-Ms": "30000", "Retry-After": "7"}, 30),
    ],
)
async def test_persistent_refusal_has_a_retry_after(headers: dict[str, str], expected: float) -> None:
    error = await failure(ask(), default=status(503, {}, headers))
    assert isinstance(error, LLMUnavailable)
    assert error.retry_after_s == expected


async def test_what_the_server_said_is_cut_and_holds_no_key_of_ours() -> None:
    body = {"error": {"message": "no such key: sk-ours " + "x" * 900}}
    llm_message = (await failure(ask(), status(401, body), api_key="sk-ours")).extra["llm_message"]
    assert llm_message.startswith("no such key: [redacted]") and len(llm_message) == 500


async def test_a_server_that_dies_is_unavailable() -> None:
    assert isinstance(await failure(ask(), drop), LLMUnavailable)


async def test_missing_server_is_unavailable_until_it_starts() -> None:
    with socket.socket() as kept:  # the port stays reserved
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        llm = LLM(f"http://127.0.0.1:{port}/v1")
        await llm.start()
        with pytest.raises(LLMUnavailable):
            await llm.generate(ask(model="m"))
        async with OpenAIServer(port=port):
            assert len((await llm.generate(ask())).draws) == 4
            await llm.stop()


@pytest.mark.parametrize(("timeout_s", "deadline_s"), [(0.3, None), (60.0, 0.3)])
async def test_silent_server_exceeds_the_deadline_without_a_retry(
    timeout_s: float, deadline_s: float | None
) -> None:
    async with playing(hang, timeout_s=timeout_s) as (server, llm):
        with pytest.raises(DeadlineExceeded):
            await llm.generate(ask(deadline_s=deadline_s))
        assert len(server.bodies) == 1


async def test_one_failed_call_fails_the_whole_draw() -> None:
    async with playing(default=answers(at_most=1)) as (server, llm):
        await llm.generate(ask(2))  # which teaches that one answer comes per call
        server.play(answers(), answers(), status(401, {"error": "no"}))
        with pytest.raises(LLMError):
            await llm.generate(ask(3))


# Health


@pytest.mark.parametrize("server", [{"health": 503}, {"models": ()}])
async def test_check_of_an_unhealthy_server(server: dict[str, Any]) -> None:
    async with playing(server=server, model=None) as (server, llm):
        with pytest.raises(LLMUnavailable):
            await llm.check()


def health(**routes: tuple[int, Any]) -> tuple[LLM, list[str]]:
    """Return a client of a server with these routes, and the list of requested paths."""
    requests = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request.url.path)
        code, payload = routes.get(request.url.path.rpartition("/")[2], (404, None))
        return httpx2.Response(code, json=payload, headers={"location": "/login"} if code == 302 else None)

    return LLM("http://host", transport=httpx2.MockTransport(answer)), requests


@pytest.mark.parametrize(
    "listed", [{"data": [{"id": "m"}]}, {"models": [{"name": "m"}]}, [{"id": "m"}], ["m"]], ids=str
)
async def test_check_of_a_gateway_only_lists_models(listed: Any) -> None:
    """Its /health may call all models, which costs tokens."""
    llm, paths = health(models=(200, listed), health=(500, {}))
    await llm.check()
    assert paths == ["/v1/models"]
    assert llm.identity(ask()).model == "m"


@pytest.mark.parametrize("code", [500, 502, 503])
async def test_server_that_fails_to_list_models_is_unhealthy(code: int) -> None:
    llm, _ = health(models=(code, {}))
    with pytest.raises(LLMUnavailable, match="unhealthy"):
        await llm.check()


async def test_the_health_route_has_no_v1() -> None:
    requests = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/models"):
            requests.append(str(request.url))
        return httpx2.Response(200, json={"data": [{"id": MODEL, "owned_by": "vllm"}]})

    for path in ("", "/v1", "/v1?version=1", "/api/v3"):
        llm = LLM(f"http://host{path}", model=MODEL, transport=httpx2.MockTransport(answer))
        await llm.check()
    paths = ("health", "health", "health?version=1", "api/v3/health")
    assert requests == [f"http://host/{path}" for path in paths]


# Waiting for the server


async def test_the_server_is_not_asked_for_an_answer_that_would_be_too_late() -> None:
    async with playing(default=after(0.4, answers()), queue=CallQueue(1, 9)) as (server, llm):
        await llm.generate(ask())  # how long an answer takes
        first = asyncio.create_task(llm.generate(ask()))
        await asyncio.sleep(0)
        with pytest.raises((Overloaded, DeadlineExceeded)):
            await llm.generate(ask(deadline_s=0.7))
        assert len((await first).draws) == 4
        assert len(server.bodies) == 2
