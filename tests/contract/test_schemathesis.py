"""schemathesis walks the whole contract against the application with fakes: no 5xx, no contract break."""

import asyncio
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.app import create_app, serving_of
from service.llm.port import is_blank
from service.llm.sse import parse_object
from service.settings import Settings
from tests.support.calibrations import add
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.replica_apps import deciding
from tests.support.sqlite_store import SqliteStore

KEY = "of-the-test"
ANSWER = {
    "model": "fake-llm",
    "choices": [{"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}],
}
REFUSAL = {"error": {"message": "The body is not an object.", "type": "invalid_request_error"}}
# Data that break the schema by their size are refused as too large: a refusal like the others.
REFUSALS = ["400", "401", "403", "404", "405", "409", "413", "415", "422"]
# A schema cannot describe the content of a file: a well-formed upload may still have no usable row.
UPLOAD_ANSWERS = ["2xx", "401", "403", "404", "409", "413", "422"]
# The LLM server checks the content of a call of the drop-in: the contract leaves it open.
OPEN_ANSWERS = ["2xx", "400", "401", "403", "404", "413", "422"]
# A time that a key may end at is one to come, which no schema can say; and 500 keys of a scope are enough.
KEY_ANSWERS = ["2xx", "401", "403", "404", "409", "422"]
config = schemathesis.Config.from_dict(
    {
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
        "operations": [
            {
                "include-path": "/calibrate",
                "checks": {"positive_data_acceptance": {"expected-statuses": UPLOAD_ANSWERS}},
            }
        ]
        + [
            {
                "include-path": path,
                "checks": {"positive_data_acceptance": {"expected-statuses": OPEN_ANSWERS}},
            }
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses")
        ]
        + [
            {
                "include-path": "/keys",
                "checks": {"positive_data_acceptance": {"expected-statuses": KEY_ANSWERS}},
            }
        ],
    }
)


async def answer(exchange: Exchange) -> None:
    """Answer a call of the drop-in as an LLM server: 200 for every object, and for stored responses."""
    is_stored = exchange.path.startswith("/v1/responses/")
    is_object = is_stored or parse_object(exchange.data) is not None
    await exchange.send(200 if is_object else 400, ANSWER if is_object else REFUSAL)


@pytest.fixture
def contract(request: pytest.FixtureRequest) -> Iterator[BaseSchema]:
    """The contract of an application with P(correct). Without a model of it, /verify answers 503.

    A fixture, because its cases take seconds to make: only the process that runs them makes them.
    """
    # schemathesis 4.32 sets an attribute that pytest 9.2 no longer has.
    request.node._nodeid = request.node.nodeid
    asked = Settings(admin_key=KEY, num_samples=5)
    llm, embedder, store = FakeLLM(), FakeEmbedder(16), SqliteStore()

    async def decide() -> None:
        for one in deciding(serving_of(asked), llm, embedder):
            await add(store.calibrations, one, {})
            await store.calibrations.activate(one.id)

    asyncio.run(decide())
    with serving_in_thread(OpenAIServer(default=answer)) as server:
        asked = asked.model_copy(update={"llm_url": server.url})
        app = create_app(asked, llm=llm, embedder=embedder, store=store)
        yield schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


schema = schemathesis.pytest.from_fixture("contract")


@schema.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_contract_holds(case) -> None:
    beyond = unpaired(case.body) or single(case.body) or blank(case.body)
    beyond = beyond or answered(case.body)
    excluded = [positive_data_acceptance] if beyond else []
    case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=excluded)


def unpaired(body: object) -> bool:
    """Tell whether a body has another number of log-probabilities than of samples: beyond a schema, too."""
    if not isinstance(body, dict):
        return False
    samples, logprobs = body.get("samples"), body.get("logprobs")
    return isinstance(samples, list) and isinstance(logprobs, list) and len(samples) != len(logprobs)


def blank(body: object) -> bool:
    """Return True if a body has texts of white space only.

    As answers, the settings decide about them; as questions, they are refused. The languages that read the
    contract's patterns disagree on white space.
    """
    if not isinstance(body, dict):
        return False
    samples = body.get("samples")
    texts = [*samples] if isinstance(samples, list) else []
    texts += [body.get(name) for name in ("candidate", "prompt", "question")]
    return any(isinstance(text, str) and is_blank(text) for text in texts)


def answered(body: object) -> bool:
    """Tell whether the last turn of a conversation is the assistant's."""
    turns = body.get("messages") if isinstance(body, dict) else None
    last = turns[-1] if isinstance(turns, list) and turns else None
    return isinstance(last, dict) and last.get("role") == "assistant"


def single(body: object) -> bool:
    """Tell whether a body asks for a score of one answer, which takes a calibration that is not here."""
    if not isinstance(body, dict):
        return False
    samples = body.get("samples")
    return body.get("num_samples") == 1 or (isinstance(samples, list) and len(samples) == 1)
