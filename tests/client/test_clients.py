"""What a client is made of: keys, paths, one's own httpx client, and closing."""

import asyncio
import gc
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import eigencal
from eigencal import AsyncClient, Client
from tests.client.test_retries import GOOD, Script
from tests.support.both_clients import Driver
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving_app
from tests.support.sqlite_store import SqliteStore


def test_a_key_opens_and_another_does_not(drive: Driver, tmp_path: Path) -> None:
    parts = {"llm": FakeLLM(), "embedder": FakeEmbedder(8), "store": SqliteStore()}
    with serving_app(tmp_path, **parts, score_key="right-score-key", admin_key="right-admin-key") as url:
        with drive(url, key="right-score-key") as client:
            assert client.score("What?").answer
            with pytest.raises(eigencal.PermissionDeniedError):
                client.jobs()
        with drive(url, key="wrong") as client, pytest.raises(eigencal.AuthenticationError):
            client.score("What?")
        with drive(url) as client, pytest.raises(eigencal.AuthenticationError):
            client.score("What?")


def test_what_is_sent(drive: Driver) -> None:
    script = Script(httpx.ConnectError("no"), GOOD)
    with drive("http://host:8/base/", answer=script, key="k", longest_wait_s=0.01) as client:
        client.score("é?", samples=("a", "b"), effort=None, return_={"modes"}, logprobs=iter((-1.0, -2.0)))
    first, request = script.seen
    assert first.content == request.content
    assert str(request.url) == "http://host:8/base/score"
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["user-agent"] == f"eigencal-python/{eigencal.__version__}"
    sent = json.loads(request.content)
    assert sent == {"prompt": "é?", "samples": ["a", "b"], "return": ["modes"], "logprobs": [-1.0, -2.0]}


@pytest.mark.parametrize("value", [object(), float("nan")])
def test_what_is_no_json_is_not_sent(drive: Driver, value: object) -> None:
    script = Script(GOOD)
    with (
        drive("http://host", answer=script) as client,
        pytest.raises(eigencal.InvalidSetupError, match="JSON"),
    ):
        client.score("What?", target_error=value)
    assert script.seen == []


def test_a_call_may_take_for_ever(drive: Driver, url: str) -> None:
    """A socket takes no limit that is endless."""
    with drive(url, timeout_s=float("inf")) as client:
        assert client.score("What?").answer


def test_ones_own_httpx_client_is_used_and_stays_open() -> None:
    script = Script(GOOD)
    with httpx.Client(transport=httpx.MockTransport(script), headers={"x-mine": "1"}) as http:
        with Client("http://host", http_client=http) as client:
            client.score("What?")
        assert not http.is_closed
    assert script.seen[0].headers["x-mine"] == "1"


def test_ones_own_httpx_client_follows_no_redirect_with_the_prompt_either() -> None:
    script = Script(httpx.Response(307, headers={"location": "http://elsewhere/score"}), GOOD)
    with httpx.Client(transport=httpx.MockTransport(script), follow_redirects=True) as http:
        with pytest.raises(eigencal.UnexpectedResponseError, match="elsewhere"):
            Client("http://host", http_client=http).score("What?")
    assert len(script.seen) == 1


async def awaited() -> httpx.Request:
    script = Script(GOOD)
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as http:
        client = AsyncClient("http://host", http_client=http)
        await client.score("What?")
        await client.aclose()
        assert not http.is_closed
    return script.seen[0]


def test_ones_own_async_client_is_used_and_stays_open() -> None:
    assert asyncio.run(awaited()).url.path == "/score"


def test_a_client_that_is_forgotten_leaves_no_socket(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = Client(url)
        assert client.score("What?").answer
        http = client._http
        del client
        gc.collect()
    assert http.is_closed


def test_several_threads_share_a_client(url: str) -> None:
    with Client(url) as client, ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(client.score, [f"question {i}" for i in range(20)]))
    assert len({score.id for score in scores}) == 20
    client.close()  # twice is no error
