"""POST /score with the real client and an unexpected LLM server on a socket."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI

from service.app import build_llm, create_app, own_keys, serving_of
from service.calibration.calibration import service_fingerprint
from service.llm.client import LLM
from service.llm.samples import Generation
from service.scoring.score import ScoreCommand
from service.settings import Settings
from tests.api.test_score import calibration
from tests.support.calibrations import Active
from tests.support.fakes import FakeEmbedder
from tests.support.live import in_process
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, once, raw, status
from tests.support.sqlite_store import SqliteStore

EMBEDDER = FakeEmbedder(8)


@dataclass(frozen=True)
class Post:
    """Scores a prompt with the given fields in an application in this process."""

    app: FastAPI
    llm: LLM
    http: httpx.AsyncClient

    async def __call__(self, **body: Any) -> httpx.Response:
        return await self.http.post("/score", json={"prompt": "Which?", "num_samples": 4} | body)


Opened = Callable[..., AbstractAsyncContextManager[Post]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Return a context manager that opens the application with a server and yields a function that scores."""

    @asynccontextmanager
    async def opening(server: OpenAIServer, **values: Any) -> AsyncIterator[Post]:
        store = SqliteStore()
        store.calibrations = values.pop("calibrations", store.calibrations)
        values = {"llm_url": server.url, "llm_model": MODEL, "self_check": False} | values
        settings = Settings(data_dir=tmp_path, **values)
        llm = build_llm(settings)
        app = create_app(settings, llm=llm, embedder=EMBEDDER, store=store)
        async with in_process(app, raise_app_exceptions=False) as http:
            yield Post(app, llm, http)

    return opening


async def test_samples_cut_within_reasoning_do_not_count_as_agreement(opened: Opened) -> None:
    thought = '<think type="long">The capital of France: it is one of'
    async with OpenAIServer(default=answers(thought, finish="length")) as server, opened(server) as post:
        response = await post(num_samples=20, sampling={"max_tokens": 100})
        problem = response.json()
        assert (response.status_code, problem["code"]) == (502, "no_usable_answers")
        assert "20 of 20" in problem["detail"] and "100 tokens" in problem["detail"]
        assert not problem["retryable"]
    async with OpenAIServer(default=answers(thought, f"{thought}</think>Paris")) as server:
        async with opened(server) as post:
            body = (await post(num_samples=20)).json()
    assert (body["answer"], body["num_samples"], body["num_empty"]) == ("Paris", 10, 10)
    assert body["evidence"] is None


def fitted(model: str, *, omitted: tuple[str, ...] = ()) -> Active:
    """Return an active calibration of the service's own set-up with this model."""
    serving = serving_of(Settings())
    llm = LLM("http://127.0.0.1:9", model=model)
    request = serving.request(prompt="Which?")
    drawn = Generation((), model, omitted=omitted)
    llm_identity = llm.identity(request).of(drawn)
    return Active(calibration(service_fingerprint(llm_identity, request.sampling, EMBEDDER.identity), 20))


# Who answered


async def test_calibration_of_another_model_is_not_used_if_the_server_ignores_the_name(
    opened: Opened,
) -> None:
    async with OpenAIServer(default=answers(model="m2")) as server:
        async with opened(server, llm_model="m1", calibrations=fitted("m1")) as post:
            body = (await post()).json()
        async with opened(server, llm_model="m1", calibrations=fitted("m2")) as post:
            right = (await post()).json()
    assert (body["model"], body["calibrated"]) == ("m2", False)
    assert body["warnings"][0]["differs"] == ["model"]
    assert (right["model"], right["calibrated"]) == ("m2", True)


async def test_model_of_a_score_is_not_changed_by_concurrent_requests(opened: Opened) -> None:
    """No model is configured; a call to m1 ends after the server was replaced by one with m2."""
    go = asyncio.Event()
    gone = status(404, {"error": {"message": "The model `m1` does not exist."}})
    script = [once(go, answers(model="m1")), gone, answers(model="m2")]
    async with OpenAIServer(script, models=("m1",)) as server:
        async with opened(server, llm_model="", calibrations=fitted("m2")) as post:
            first = asyncio.create_task(post())
            async with asyncio.timeout(60):
                await server.arrived.wait()
            server.models = ("m2",)
            assert (await post()).status_code == 404
            second = (await post()).json()
            go.set()
            body = (await first).json()
    assert (second["model"], second["calibrated"]) == ("m2", True)
    assert (body["model"], body["calibrated"]) == ("m1", False)


async def test_model_name_of_the_response_matches_the_own_setup(opened: Opened) -> None:
    active = fitted("openai/m-2024")
    async with OpenAIServer(default=answers(model="openai/m-2024")) as server:
        async with opened(server, llm_model="m", calibrations=active) as post:
            services, key = post.app.state.scoring, active.any_active()[0].fingerprint.key()
            assert key not in own_keys(services.serving, post.llm, EMBEDDER)
            assert (await post()).json()["calibrated"]
            assert key in own_keys(services.serving, post.llm, EMBEDDER)
            command = ScoreCommand(1, services.serving.sampling, services.serving.template.prompt("?"))
            assert services.scorer.choice.fingerprint(command).model == "openai/m-2024"


async def test_calibration_is_bound_to_dropped_parameters(
    opened: Opened,
) -> None:
    refusal = status(400, {"error": {"message": "Unrecognized request argument supplied: top_k"}})

    async def refusing(exchange: Exchange) -> None:
        await (refusal if "top_k" in exchange.body else answers())(exchange)

    without = fitted(MODEL, omitted=("top_k",))
    assert without.any_active()[0].fingerprint.sampling["top_k"] is None
    for active, calibrated in ((fitted(MODEL), False), (without, True)):
        async with OpenAIServer(default=refusing) as server, opened(server, calibrations=active) as post:
            for _ in range(3):
                body = (await post()).json()
                assert body["calibrated"] is calibrated
                differs = [warning["differs"] for warning in body["warnings"]]
                assert differs == ([] if calibrated else [["sampling.top_k"]])
            body_ = (await post(sampling={"top_k": 5})).json()
            assert body_["code"] == "llm_error"


# Invalid values


NONSENSE = ["1e999", '"many"', "null", "[" * 50_000 + "]" * 50_000]
FIELDS = [
    "index",
    "finish_reason",
    "text",
    "logprobs",
    "logprob",
    "model",
    "usage",
    "choices",
    "choice",
    "all",
]


async def test_invalid_fields_cause_no_internal_error(opened: Opened) -> None:
    async with OpenAIServer() as server, opened(server) as post:
        for field, value in itertools.product(FIELDS, NONSENSE):
            server.default = saying(**{field: value})
            response = await post()
            assert response.status_code in (200, 502), (field, value[:9], response.text)
            codes = (None, "llm_bad_response", "llm_error", "no_usable_answers")
            assert response.json().get("code") in codes, (field, value[:9])
            json.loads(response.content, parse_constant=pytest.fail)  # no NaN and no Infinity


PLAIN = {"finish_reason": '"stop"', "text": '"Paris"', "logprob": "-1", "model": f'"{MODEL}"', "usage": "{}"}


def saying(**fields: str) -> Behaviour:
    """Answer with four choices with these fields."""
    field = PLAIN | fields
    logprobs = fields.get("logprobs", f'{{"content": [{{"logprob": {field["logprob"]}}}]}}')

    def choice(i: int) -> str:
        text = f'"index": {fields.get("index", i)}, "finish_reason": {field["finish_reason"]}'
        return f'{{{text}, "message": {{"content": {field["text"]}}}, "logprobs": {logprobs}}}'

    choices = ", ".join(fields.get("choice", choice(i)) for i in range(4))
    whole = f'"model": {field["model"]}, "usage": {field["usage"]}, '
    whole = fields.get("all", f'{{{whole} "choices": {fields.get("choices", f"[{choices}]")}}}')
    return raw(whole.encode())


async def test_services_own_key_is_never_exposed(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-topsecretkey-1234567890"
    status_ = status(401, {"error": {"message": f"Incorrect API key provided: Bearer {key}"}})
    async with OpenAIServer(default=status_) as server, opened(server, llm_api_key=key) as post:
        response = await post()
    assert (response.status_code, response.json()["code"]) == (502, "llm_error")
    assert "Incorrect API key" in response.text
    assert key not in response.text + caplog.text
