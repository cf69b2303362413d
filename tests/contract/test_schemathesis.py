"""schemathesis walks the whole contract against the application with fakes: no 5xx, no contract break."""

import asyncio
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.app import create_app, serving_of
from service.llm.client import LLM
from service.llm.samples import is_blank
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
UNDESCRIBED = {
    "/calibrate": UPLOAD_ANSWERS,
    **dict.fromkeys(("/v1/chat/completions", "/v1/responses"), OPEN_ANSWERS),
    "/keys": KEY_ANSWERS,
}
config = schemathesis.Config.from_dict(
    {
        "checks": {
            "negative_data_rejection": {"expected-statuses": REFUSALS},
            # 504: a deadline of a millisecond passes.
            "not_a_server_error": {"expected-statuses": ["2xx", "4xx", "504"]},
        },
        "operations": [
            {"include-path": path, "checks": {"positive_data_acceptance": {"expected-statuses": statuses}}}
            for path, statuses in UNDESCRIBED.items()
        ],
    }
)


async def answer(exchange: Exchange) -> None:
    """Answer a call of the drop-in as an LLM server: 200 for every object."""
    is_object = parse_object(exchange.data) is not None
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
        llm.server = LLM(server.url, model="m")
        app = create_app(asked, llm=llm, embedder=embedder, store=store)
        yield schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


schema = schemathesis.pytest.from_fixture("contract")


@schema.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_contract_holds(case) -> None:
    excluded = [positive_data_acceptance] if is_beyond_a_schema(case.body) else []
    case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=excluded)


def is_beyond_a_schema(body: object) -> bool:
    """Return True if the service may refuse a body for a reason that a schema cannot express.

    Such reasons are: another number of log-probabilities than of samples, a score of one answer (it needs a
    calibration that is not here), a deadline that passes, a conversation that ends with the assistant's turn,
    and texts of white space only. Such answers do not count, and such questions are refused. The languages
    that read the contract's patterns disagree on white space.
    """
    if not isinstance(body, dict):
        return False
    lists = {name: value for name, value in body.items() if isinstance(value, list)}
    samples, logprobs, turns = (lists.get(name, []) for name in ("samples", "logprobs", "messages"))
    is_unpaired = lists.keys() >= {"samples", "logprobs"} and len(samples) != len(logprobs)
    is_single = body.get("num_samples") == 1 or len(samples) == 1
    last = turns[-1] if turns else None
    is_answered = isinstance(last, dict) and last.get("role") == "assistant"
    has_deadline = "deadline_ms" in body
    texts = [*samples, *(body.get(name) for name in ("candidate", "prompt", "question"))]
    has_blank = any(isinstance(text, str) and is_blank(text) for text in texts)
    return is_unpaired or is_single or is_answered or has_blank or has_deadline
