"""A scripted LLM server, a service of ours in front of it, and LiteLLM's proxy in front of both."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.processes import free_port, running, wait_for
from tests.clients.environments import BIN, LITELLM, LITELLM_KEY, LLM_KEY, PATIENCE_S, SCORE_KEY, printed
from tests.clients.recipes import BLOCKS, filled_in
from tests.clients.upstream import upstream
from tests.support.openai_server import MODEL, OpenAIServer, serving_in_thread
from tests.support.services import Service, service

Told = dict[str, Any]


@pytest.fixture(scope="session")
def server() -> Iterator[OpenAIServer]:
    with serving_in_thread(upstream()) as made:
        yield made


@pytest.fixture(scope="session")
def ours(server: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service in front of the server."""
    folder = tmp_path_factory.mktemp("ours")
    keys = {"score_key": SCORE_KEY, "llm_api_key": LLM_KEY}
    with service(f"sqlite:///{folder / 'store.db'}", server, folder, **keys) as made:
        yield str(made.http.base_url).rstrip("/")


@contextmanager
def litellm_proxy(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Run LiteLLM's own proxy with this configuration; yield its address."""
    if not BIN.exists():
        pytest.fail("the clients' environment is missing: make test-clients")
    path = folder / "litellm.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    port = free_port()  # it does not tell which one it took
    command = [str(BIN / "litellm"), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    env = {**LITELLM, "LITELLM_MASTER_KEY": LITELLM_KEY}
    with running(command, env=env, log=folder / "litellm.log") as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health/liveliness", process, PATIENCE_S)
        yield url


def behind(name: str, base: str, key: str, model: str = MODEL) -> dict[str, Any]:
    """Return LiteLLM's entry of a model that an OpenAI-compatible server serves."""
    return {
        "model_name": name,
        "litellm_params": {"model": f"openai/{model}", "api_base": base, "api_key": key},
    }


@pytest.fixture(scope="session")
def proxy(server: OpenAIServer, ours: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LiteLLM's proxy as the page configures it, and more models: one, for it takes long to start.

    `direct` is the server's model, `ours` the same through our service.
    """
    config = yaml.safe_load(filled_in(BLOCKS["gateway.yaml"], ours))
    config["model_list"] += [
        behind("direct", server.url, LLM_KEY),
        behind("ours", f"{ours}/v1", SCORE_KEY),
    ]
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), config) as url:
        yield url


@pytest.fixture(scope="session")
def told(
    server: OpenAIServer, ours: str, request: pytest.FixtureRequest
) -> Callable[[str], tuple[Told, Told]]:
    """Return a client's output with the server itself, and with our service in front of it."""
    kept: dict[str, tuple[Told, Told]] = {}

    def both(client: str) -> tuple[Told, Told]:
        if client not in kept:
            if client == "litellm_proxy":
                url = f"{request.getfixturevalue('proxy')}/v1"
                pair = (url, LITELLM_KEY, "direct"), (url, LITELLM_KEY, "ours")
            else:
                pair = (server.url, LLM_KEY, MODEL), (f"{ours}/v1", SCORE_KEY, MODEL)
            kept[client] = printed(client, *pair[0]), printed(client, *pair[1])
        return kept[client]

    return both


CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
NUM_QUESTIONS = 120


def half_known(body: dict[str, Any]) -> list[str | None]:
    """Answer as a model that knows the even questions, and has a different idea of the odd ones each time."""
    prompt = str(body["messages"][-1]["content"])
    number = int(prompt.rsplit(maxsplit=1)[-1]) if prompt.rsplit(maxsplit=1)[-1].isdigit() else 0
    step = number % 2
    return [CITIES[(number // 2 + i * step) % len(CITIES)] for i in range(int(body.get("n") or 1))]


def labelled() -> list[dict[str, Any]]:
    """Questions with their references: the model answers the odd ones wrong."""
    known = {i: CITIES[i // 2 % len(CITIES)] for i in range(0, NUM_QUESTIONS, 2)}
    asked = ([{"role": "user", "content": f"question {i}"}] for i in range(NUM_QUESTIONS))
    return [{"messages": turns, "reference": known.get(i, "Rome")} for i, turns in enumerate(asked)]


@pytest.fixture(scope="session")
def half_knowing() -> Iterator[OpenAIServer]:
    with serving_in_thread(upstream(half_known)) as made:
        yield made


@contextmanager
def calibrated(server: OpenAIServer, folder: Path) -> Iterator[Service]:
    """A service in front of an LLM server, with a calibration of it."""
    with service(f"sqlite:///{folder / 'store.db'}", server, folder, llm_api_key=LLM_KEY) as made:
        job = made.post(labelled(), activate="always").json()
        ended = made.ended(job["id"])
        assert ended["state"] == "succeeded", ended
        yield made


@pytest.fixture(scope="session")
def deciding(half_knowing: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a calibration that knows right from wrong."""
    with calibrated(half_knowing, tmp_path_factory.mktemp("deciding")) as made:
        yield made
