"""All operations of the contract through the Python client, on the real application over a socket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import eigencal
from tests.support.both_clients import Driver, awaited, waiting
from tests.support.fakes import FakeEmbedder
from tests.support.in_thread import serving_app
from tests.support.openai_server import MODEL, OpenAIServer, answers, serving_in_thread

CONTRACT = json.loads((Path(__file__).parents[2] / "clients" / "openapi.json").read_text())
# Called by others: routers and OpenAI's clients.
NOT_CALLED = {
    ("GET", "/"),
    ("GET", "/health"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/compact"),
}
OPERATIONS = {(method.upper(), path) for path, item in CONTRACT["paths"].items() for method in item}
SAID = ["Paris", "Lyon", "Paris", "Nice"]
ROWS = [
    {
        "prompt": f"question {i}",
        "reference": ["Paris", "Lyon", "Rome"][i % 3],
        "samples": ["Rome", "Metz", "Rome", *SAID[: i % 5]],
    }
    for i in range(60)
]
TURNS = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(params=[waiting, awaited], ids=["Client", "AsyncClient"])
def drive(request: pytest.FixtureRequest) -> Driver:
    param: Driver = request.param
    return param


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    """Run the real application with a database and a scripted LLM server."""
    server = OpenAIServer(default=answers("Paris", "Paris", "Lyon"))
    settings = {"llm_model": MODEL, "num_samples": 5}
    with serving_in_thread(server):
        with serving_app(
            tmp_path, llm=None, embedder=FakeEmbedder(16), llm_url=server.url, **settings
        ) as url:
            yield url


def reached(calls: list[httpx.Request]) -> set[tuple[str, str]]:
    """Return the operations of the contract that were requested."""
    results = set()
    for request in calls:
        parts = request.url.path.split("/")
        for method, path in sorted(OPERATIONS):
            theirs = path.split("/")
            same = len(theirs) == len(parts) and all(
                a == b or a.startswith("{") for a, b in zip(theirs, parts, strict=True)
            )
            exact = path == request.url.path or request.url.path not in {item for _, item in OPERATIONS}
            if method == request.method and same and exact:
                results.add((method, path))
    return results


def walk(client: Any) -> None:
    """Call all methods and check their results."""
    assert client.health().status == "ok"
    assert client.ready().parts["llm"] == "ok"
    assert "eigencal" in client.metrics()
    score = client.score(TURNS[0]["content"], num_samples=3)
    assert client.get_score(score.id).lambda_max == score.lambda_max
    assert [item.ok for item in client.score_batch(["a"])] == [True]
    jobs(client)
    drop_in(client)


def jobs(client: Any) -> None:
    job = client.calibrate(ROWS, name="walk", activate="never")
    done = client.wait(job.id)
    assert (done.state, done.succeeded, done.name) == ("succeeded", True, "walk")
    assert [job_.id for job_ in client.jobs(limit=1)] == [client.job(job.id).id]
    result = client.calibration(done.calibration_id)
    assert not result.active and client.activate(result.id).active
    assert client.active_calibrations()[0].id == client.calibrations()[-1].id == result.id
    [activation, *_] = client.activations()
    assert (activation.calibration_id, activation.by) == (result.id, "no key")
    again = client.correct_rows(result.id, [{"line": 1, "correct": False}], activate="never")
    assert client.wait(again.id).succeeded
    assert client.report(result.id)["calibration"]["id"] == result.id
    assert client.report_page(result.id).lstrip().lower().startswith("<!doctype html>")
    assert [row["prompt"] for row in client.data(result.id)] == [row["prompt"] for row in ROWS]
    assert client.delete_data(result.id) is None
    with pytest.raises(eigencal.NotFoundError):
        client.data(result.id)
    with pytest.raises(eigencal.ConflictError):
        client.retry(job.id)
    with pytest.raises(eigencal.ConflictError):
        client.cancel(job.id)


def drop_in(client: Any) -> None:
    assert [model.id for model in client.models()] == [MODEL]
    answer = client.chat(TURNS, model=MODEL, eigencal={"num_samples": 3})
    assert (answer.content, answer.uncertainty.status) == ("Paris", "scored")
    assert answer.uncertainty.candidate is not None
    assert client.chat(TURNS, model=MODEL, mode="off").uncertainty is None
    pieces = list(client.stream_chat(TURNS, model=MODEL))
    assert "".join(piece.content for piece in pieces) == "Paris"
    assert [piece.uncertainty.status for piece in pieces if piece.uncertainty] == ["scored"]
    with pytest.raises(eigencal.ServerError):
        client.verify("Which?", "Paris", threshold=0.5)


def keys(client: Any) -> None:
    made = client.create_key("walk", "score")
    listed = client.keys()
    assert [(key.id, key.state) for key in listed] == [(made.id, "valid")]
    assert client.revoke_key(made.id) is None
    listed = client.keys()
    assert [key.state for key in listed] == ["revoked"]


def test_every_operation_has_a_client_method(drive: Driver, real: str, tmp_path: Path) -> None:
    calls: list[httpx.Request] = []

    def note(request: httpx.Request) -> None:
        calls.append(request)

    async def note_awaited(request: httpx.Request) -> None:
        calls.append(request)

    with drive(real) as client:
        awaited = isinstance(getattr(client, "_http", None), httpx.AsyncClient)
        hook = note_awaited if awaited else note
        client._http.event_hooks = {"request": [hook], "response": []}
        walk(client)
        keys(client)  # the last: the first key of a scope closes it
    assert OPERATIONS - reached(calls) == NOT_CALLED
