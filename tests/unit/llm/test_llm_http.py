"""The HTTP adapter with a scripted server on a real socket."""

import asyncio
import gzip
import json
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
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
)
from service.llm import openai_server, wire
from service.llm.admission import AdmissionQueue
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import Generation, GenerationRequest, Message, PromptShape, Sampling
from service.remote import TRY_AGAIN
from tests.support.openai_server import (
    MODEL,
    Behaviour,
    Exchange,
    OpenAIServer,
    answers,
    drop,
    endless,
    hang,
    raw,
    status,
    stream,
)

PROMPT = "What is the capital of France?"


def ask(n: int = 4, **more: Any) -> GenerationRequest:
    sampling = more.pop("sampling", Sampling())
    return GenerationRequest(num_samples=n, sampling=sampling, **({"prompt": PROMPT} | more))


def played(
    scenario: Callable[[OpenAIServer, HttpLanguageModel], Awaitable[Any]],
    *script: Behaviour,
    default: Behaviour | None = None,
    server: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    async def main() -> Any:
        async with OpenAIServer(script, default=default or answers(), **(server or {})) as fake:
            llm = HttpLanguageModel(fake.url, **({"model": MODEL} | settings))
            await llm.start()
            try:
                return await asyncio.wait_for(scenario(fake, llm), 60)
            finally:
                await llm.stop()

    return asyncio.run(main())


def generated(
    request: GenerationRequest, *script: Behaviour, **more: Any
) -> tuple[Generation, list[dict[str, Any]]]:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> Any:
        return await llm.generate(request), server.bodies

    return played(scenario, *script, **more)


def failure(request: GenerationRequest, *script: Behaviour, **more: Any) -> EigencalError:
    with pytest.raises(EigencalError) as caught:
        generated(request, *script, **more)
    return caught.value


def texts(generation: Generation) -> list[str]:
    return [draw.text for draw in generation.draws]


# Requests


def test_one_call_with_n_and_every_sampling_parameter() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, max_tokens=9, stop=("\n",))
    generation, bodies = generated(ask(4, sampling=sampling))
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
    assert (generation.model, generation.missing_reason, generation.requested) == (MODEL, None, 4)
    assert (generation.usage.prompt_tokens, generation.usage.completion_tokens) == (7, 8)


def test_messages_always_use_the_chat_api() -> None:
    turns = (Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Who?"))

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await llm.generate(ask(prompt=None, messages=turns))
        assert server.requests[0].path == "/v1/chat/completions"
        assert [turn["content"] for turn in server.bodies[0]["messages"]] == ["Hi", "Hello", "Who?"]

    played(scenario, api="completions", shape=PromptShape(few_shot="x", template="y {prompt}"))


def test_unconfigured_model_is_requested_once() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await asyncio.gather(llm.generate(ask()), llm.generate(ask()))
        assert server.gets == ["/v1/models"]
        assert {body["model"] for body in server.bodies} == {"first"}
        assert llm.identity(ask(model="own")).model == "own"
        await llm.generate(ask(model="own"))
        assert server.bodies[-1]["model"] == "own"

    played(scenario, server={"models": ("first", "second")}, model=None)


# Seeds and temperature 0


def test_neighbouring_seeds_do_not_overlap() -> None:
    seeds = [wire.spread_seed(seed, call) for seed in range(20) for call in range(2)]
    assert seeds == [wire.spread_seed(seed, call) for seed in range(20) for call in range(2)]
    gaps = [b - a for a, b in zip(sorted(seeds), sorted(seeds)[1:], strict=False)]
    assert min(gaps) > 256


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_greedy_answer_is_requested_once_and_repeated(temperature: float) -> None:
    generation, bodies = generated(ask(5, sampling=Sampling(temperature=temperature)))
    assert texts(generation) == ["Paris"] * 5
    assert [body["n"] for body in bodies] == [1]
    assert (generation.requested, generation.missing_reason) == (5, None)


# Responses


def test_reasoning_is_removed() -> None:
    message = {"role": "assistant", "content": "Paris", "reasoning_content": "Hm", "reasoning": "Hm"}
    choices = [
        {"index": 0, "finish_reason": "stop", "message": message},
        {"index": 1, "finish_reason": "stop", "message": {"content": "<think>Hm</think> Lyon"}},
        {"index": 2, "finish_reason": "length", "message": {"content": None, "reasoning": "Hm"}},
    ]
    generation, _ = generated(ask(3), status(200, {"choices": choices}))
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
def test_other_response_than_a_completion_is_an_error(answer: Behaviour) -> None:
    assert isinstance(failure(ask(), answer), LLMBadResponse)


# Servers that ignore or refuse


@pytest.mark.parametrize("deadline_s", [None, 60.0])
def test_missing_answers_are_requested_in_parallel_and_the_limit_remembered(deadline_s: float | None) -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        first = await llm.generate(ask(5, deadline_s=deadline_s))
        assert (len(first.draws), first.missing_reason) == (5, None)
        assert [body["n"] for body in server.bodies] == [5, 1, 1, 1, 1]
        assert first.usage.prompt_tokens == 5 * 7
        await llm.generate(ask(5, deadline_s=deadline_s))
        assert [body["n"] for body in server.bodies[5:]] == [1] * 5

    played(scenario, default=answers(at_most=1))


def test_failed_parallel_calls_give_a_partial_generation() -> None:
    script = [answers(at_most=1), answers(at_most=1), status(400, {"error": "no"}), answers(at_most=1)]
    generation, _ = generated(ask(4), *script)
    assert (len(generation.draws), generation.requested, generation.missing_reason) == (3, 4, "error")


@pytest.mark.parametrize("name", ["top_k", "priority", "stream_options"])
def test_refused_parameter_is_dropped_and_remembered(name: str) -> None:
    refusal = status(400, {"error": {"message": f"Unrecognized request argument supplied: {name}"}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        request = ask(3, priority=1, deadline_s=60.0)
        assert len((await llm.generate(request)).draws) == 3
        await llm.generate(request)
        assert [name in body for body in server.bodies] == [True, False, False]

    played(scenario, refusal, use_priority=True)


def test_refused_n_leads_to_single_requests() -> None:
    refusal = status(400, {"error": {"message": "'n' : must be at most 1"}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await llm.generate(ask(4))
        await llm.generate(ask(3))
        assert [body["n"] for body in server.bodies] == [4, 1, 1, 1, 1, 1, 1, 1]

    played(scenario, refusal)


def test_requested_top_k_is_sent_unless_refused() -> None:
    refusal = status(400, {"error": {"message": "Unrecognized request argument supplied: top_k"}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        generation = await llm.generate(ask(3))
        assert generation.omitted == llm.identity(ask()).omitted == ("top_k",)
        assert llm.identity(ask(sampling=Sampling(top_k=5))).omitted == ()
        await llm.generate(ask(3))
        await llm.generate(ask(3, sampling=Sampling(top_k=5)))
        assert [body.get("top_k") for body in server.bodies] == [0, None, None, 5]
        assert llm.identity(ask()).omitted == ("top_k",)

    played(scenario, refusal)


def test_discovered_model_is_requested_again_when_missing() -> None:
    gone = status(404, {"error": {"message": f"The model `{MODEL}` does not exist."}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        server.models = ("another",)
        with pytest.raises(ModelNotFound):
            await llm.generate(ask())
        await llm.generate(ask())
        assert [body["model"] for body in server.bodies] == [MODEL, "another"]

    played(scenario, gone, model=None)


def test_observed_server_limits_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await llm.generate(ask(3))
        server.default = answers()
        monkeypatch.setattr(openai_server, "QUIRK_KEPT_S", -1.0)
        await llm.generate(ask(3))
        assert [body["n"] for body in server.bodies] == [3, 1, 1, 3]

    played(scenario, default=answers(at_most=1))


@pytest.mark.parametrize("name", ["n", "top_k", "priority", "stream_options"])
def test_error_that_only_mentions_a_parameter_does_not_drop_it(name: str) -> None:
    """For example an error that quotes the request, or refuses something else."""
    refusal = status(400, {"error": {"message": f"Bad request with {name}: too long"}})

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        request = ask(3, priority=1, deadline_s=60.0)
        with pytest.raises(LLMError):
            await llm.generate(request)
        generation = await llm.generate(request)
        assert (server.bodies[-1].keys(), generation.omitted) == (server.bodies[0].keys(), ())
        assert server.bodies[-1]["n"] == 3

    played(scenario, *[refusal] * 2, use_priority=True)


# Endless and compressed responses


@pytest.mark.parametrize("streamed", [False, True])
def test_too_long_response_is_cut(monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 2**20)
    kind = "text/event-stream" if streamed else "application/json"

    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        with pytest.raises(LLMBadResponse, match="longer"):
            await llm.generate(ask(deadline_s=50.0 if streamed else None))
        assert server.sent < 2**26

    played(scenario, default=endless(b": " + b"x" * 2**16, {"content-type": kind}))


def test_response_limit_grows_with_the_request() -> None:
    assert wire.max_bytes_of({"n": 3, "max_tokens": 64}) == wire.MAX_ANSWER_BYTES
    assert wire.max_bytes_of({"n": 20, "max_tokens": 32_768}) > 20 * 32_768 * 400


def test_implausible_token_counts_are_ignored() -> None:
    message = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}
    usage = {"prompt_tokens": 10**400, "completion_tokens": "many"}
    generation, _ = generated(ask(1), status(200, json.dumps(message | {"usage": usage}).encode()))
    assert (generation.usage.prompt_tokens, generation.usage.completion_tokens) == (0, 0)


def test_endless_refusal_is_reported_without_its_text() -> None:
    error = failure(ask(), endless(b"too bad " * 2**13, {"content-type": "application/json"}, code=400))
    assert isinstance(error, LLMError) and error.extra["llm_status"] == 400


def test_stopped_client_makes_no_calls() -> None:
    async def scenario(_: OpenAIServer, llm: HttpLanguageModel) -> None:
        await llm.stop()
        with pytest.raises(LLMUnavailable, match="cannot be reached"):
            await llm.generate(ask())

    played(scenario)


def test_unrequested_compression_is_decoded() -> None:
    answer = b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}'
    packed = status(200, gzip.compress(answer), {"content-encoding": "gzip"})
    assert texts(generated(ask(1), packed)[0]) == ["Paris"]
    broken = status(200, answer, {"content-encoding": "gzip"})
    assert isinstance(failure(ask(1), broken), LLMUnavailable)


# Who answers


def test_reported_model_is_the_answering_one() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        assert (llm.identity(ask()).model, llm.identity(ask()).answered) == ("alias", False)
        generation = await llm.generate(ask())
        assert generation.model == llm.identity(ask()).model == MODEL
        assert llm.identity(ask()).answered
        server.default = answers(model="another")
        assert (await llm.generate(ask())).model == llm.identity(ask()).model == "another"

    played(scenario, model="alias")


def test_answers_of_two_models_are_never_mixed() -> None:
    turn = iter(range(99))

    async def balanced(exchange: Exchange) -> None:
        await answers(at_most=1, model=f"m{next(turn) % 2}")(exchange)

    error = failure(ask(3), default=balanced)
    assert isinstance(error, LLMBadResponse)
    assert "two models" in error.detail


# Errors and retries


@pytest.mark.parametrize("code", sorted(TRY_AGAIN))
def test_transient_refusals_are_retried(code: int) -> None:
    refusal = status(code, {}, {"Retry-After": "0"})
    generation, bodies = generated(ask(), refusal, refusal)
    assert (len(generation.draws), len(bodies)) == (4, 3)
    assert isinstance(failure(ask(), default=refusal), LLMUnavailable)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "50"}, 50),
        ({"Retry-After": "86400"}, 60),
        ({"Retry-After-Ms": "30000"}, 30),
        ({"Retry-After-Ms": "30000", "Retry-After": "7"}, 30),
    ],
)
def test_persistent_refusal_has_a_retry_after(headers: dict[str, str], expected: float) -> None:
    error = failure(ask(), default=status(503, {}, headers))
    assert isinstance(error, LLMUnavailable)
    assert error.retry_after_s == expected


@pytest.mark.parametrize(("asked_s", "least", "most"), [(50, 20, 50), (600, 60, 60)])
def test_retry_after_may_be_a_date(asked_s: float, least: float, most: float) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=asked_s), usegmt=True)
    error = failure(ask(), default=status(503, {}, {"Retry-After": date}))
    assert error.retry_after_s is not None and least <= error.retry_after_s <= most


@pytest.mark.parametrize(
    "retry_after", ["soon", "", "Thu, 99 Foo 2026", "-1", "nan", "Wed, 01 Jan 2020 00:00:00 GMT"]
)
def test_an_unreadable_or_past_retry_after_delays_no_retry(retry_after: str) -> None:
    generation, _ = generated(ask(), status(503, {}, {"Retry-After": retry_after}))
    assert len(generation.draws) == 4


@pytest.mark.parametrize(
    ("code", "payload", "message"),
    [
        (400, {"error": {"message": "max_tokens is too large", "code": 400}}, "max_tokens is too large"),
        (401, {"error": "Unauthorized"}, "Unauthorized"),
        (422, {"message": "no"}, "no"),
        (500, b"plain text", "plain text"),
    ],
)
def test_both_error_formats_are_reported_and_not_retried(code: int, payload: Any, message: str) -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        with pytest.raises(LLMError) as caught:
            await llm.generate(ask())
        assert caught.value.extra == {"llm_status": code, "llm_message": message}
        assert len(server.bodies) == 1

    played(scenario, status(code, payload))


def test_what_the_server_said_is_cut_and_holds_no_key_of_ours() -> None:
    body = {"error": {"message": "no such key: sk-ours " + "x" * 900}}
    llm_message = failure(ask(), status(400, body), api_key="sk-ours").extra["llm_message"]
    assert llm_message.startswith("no such key: [redacted]") and len(llm_message) == 500


@pytest.mark.parametrize("deadline_s", [None, 60.0])
def test_a_server_that_dies_is_unavailable(deadline_s: float | None) -> None:
    assert isinstance(failure(ask(deadline_s=deadline_s), drop), LLMUnavailable)


def test_missing_server_is_unavailable_until_it_starts() -> None:
    async def main() -> None:
        with socket.socket() as kept:  # the port stays reserved
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", 0))
            port = kept.getsockname()[1]
            llm = HttpLanguageModel(f"http://127.0.0.1:{port}/v1")
            await llm.start()
            with pytest.raises(LLMUnavailable):
                await llm.generate(ask(model="m"))
            async with OpenAIServer(port=port):
                assert len((await llm.generate(ask())).draws) == 4
                await llm.stop()

    asyncio.run(main())


def test_silent_server_exceeds_the_deadline_without_a_retry() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        with pytest.raises(DeadlineExceeded):
            await llm.generate(ask())
        assert len(server.bodies) == 1

    played(scenario, hang, timeout_s=0.3)


# Deadlines, streams, cancellation


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_stream_only_with_a_deadline(api: str) -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        generation = await llm.generate(ask(3, deadline_s=60.0))
        assert texts(generation) == ["Paris", "Lyon", "Paris"]
        assert (generation.usage.completion_tokens, generation.missing_reason) == (3, None)
        await llm.generate(ask(3))
        assert [body.get("stream", False) for body in server.bodies] == [True, False]

    played(scenario, api=api)


def test_finished_choices_survive_the_deadline() -> None:
    generation, _ = generated(ask(4, deadline_s=0.5), stream("Paris", "Lyon", then=hang))
    assert texts(generation) == ["Paris", "Lyon"]
    assert (generation.requested, generation.missing_reason) == (4, "deadline")


def test_unicode_line_separators_do_not_split_a_stream() -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.start_stream()
        for i in range(2):
            body = {"index": i, "delta": {"content": "a\u2028b\x85c"}, "finish_reason": "stop"}
            await exchange.event(json.dumps({"choices": [body]}, ensure_ascii=False))
        await exchange.event("[DONE]")
        exchange.writer.close()

    generation, _ = generated(ask(2, deadline_s=60.0), behave)
    assert texts(generation) == ["a\u2028b\x85c"] * 2


def test_lone_surrogates_are_replaced() -> None:
    generation, _ = generated(ask(3), answers("cut \ud83d", "\ud83d\ude00", "é"))
    assert texts(generation) == ["cut \ufffd", "\U0001f600", "é"]


def test_error_inside_a_stream() -> None:
    body = {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
    assert isinstance(failure(ask(deadline_s=60.0), stream(error=body, then=drop)), LLMUnavailable)
    generation, _ = generated(ask(4, deadline_s=60.0), stream("Paris", error=body, then=drop))
    assert (texts(generation), generation.missing_reason) == (["Paris"], "error")


@pytest.mark.parametrize("deadline_s", [None, 60.0])
def test_cancelling_closes_the_connection_and_frees_the_slot(deadline_s: float | None) -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        task = asyncio.create_task(llm.generate(ask(deadline_s=deadline_s)))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.disconnected.wait(), 60)
        assert len((await llm.generate(ask())).draws) == 4

    played(scenario, hang, queue=AdmissionQueue(1, 16))


# Health


def test_check_asks_health_once_a_second() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await asyncio.gather(*(llm.check() for _ in range(5)))
        assert server.gets == ["/v1/models", "/health"]

    played(scenario)


def test_check_of_a_vllm_without_a_health_route() -> None:
    async def scenario(server: OpenAIServer, llm: HttpLanguageModel) -> None:
        await llm.check()

    played(scenario, server={"health": 404})


@pytest.mark.parametrize("server", [{"health": 503}, {"models": ()}])
def test_check_of_an_unhealthy_server(server: dict[str, Any]) -> None:
    async def scenario(_: OpenAIServer, llm: HttpLanguageModel) -> None:
        with pytest.raises(LLMUnavailable):
            await llm.check()

    played(scenario, server=server, model=None)


def test_404_names_the_url_setting() -> None:
    error = failure(ask(), status(404, b"<html>Not Found</html>"))
    assert isinstance(error, LLMError) and "EIGENCAL_LLM_URL" in error.detail


def health(**routes: tuple[int, Any]) -> tuple[HttpLanguageModel, list[str]]:
    """Return a client of a server with these routes, and the list of requested paths."""
    requests = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request.url.path)
        code, payload = routes.get(request.url.path.rpartition("/")[2], (404, None))
        return httpx2.Response(code, json=payload, headers={"location": "/login"} if code == 302 else None)

    return HttpLanguageModel("http://host", transport=httpx2.MockTransport(answer)), requests


@pytest.mark.parametrize(
    "listed", [{"data": [{"id": "m"}]}, {"models": [{"name": "m"}]}, [{"id": "m"}], ["m"]], ids=str
)
async def test_check_of_a_gateway_only_lists_models(listed: Any) -> None:
    """Its /health may call all models, which costs tokens."""
    llm, paths = health(models=(200, listed), health=(500, {}))
    await llm.check()
    assert paths == ["/v1/models"]
    assert llm.identity(ask()).model == "m"


@pytest.mark.parametrize("code", [302, 400, 401, 404, 405, 501])
async def test_server_without_a_model_list_is_healthy(code: int) -> None:
    llm, _ = health(models=(code, {}))
    llm._model = "m"  # set by EIGENCAL_LLM_MODEL
    await llm.check()


@pytest.mark.parametrize("code", [500, 502, 503])
async def test_server_that_fails_to_list_models_is_unhealthy(code: int) -> None:
    llm, _ = health(models=(code, {}))
    with pytest.raises(LLMUnavailable, match="unhealthy"):
        await llm.check()


def test_the_health_route_has_no_v1() -> None:
    requests = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/models"):
            requests.append(str(request.url))
        return httpx2.Response(200, json={"data": [{"id": MODEL, "owned_by": "vllm"}]})

    async def main() -> None:
        for path in ("", "/v1", "/v1?version=1", "/api/v3"):
            llm = HttpLanguageModel(f"http://host{path}", model=MODEL, transport=httpx2.MockTransport(answer))
            await llm.check()

    asyncio.run(main())
    paths = ("health", "health", "health?version=1", "api/v3/health")
    assert requests == [f"http://host/{path}" for path in paths]
