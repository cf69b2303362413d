"""The TypeScript client over the death of the service: a job that is waited for, and a batch under way."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import free_port
from tests.clients.environments import PATIENCE_S
from tests.clients.typescript import FOLDER, started
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import Hold, asked, cities, llm_and_embedder, questions, service, until

pytestmark = pytest.mark.clients
WAITS = """
import { Eigencal } from "./dist/index.js";
const job = await new Eigencal().calibrate(JSON.parse(process.env.ROWS), { activate: "never" });
console.log((await job.wait()).state);
"""
SCORES = """
import { Eigencal } from "./dist/index.js";
const prompts = JSON.parse(process.env.ROWS).map((row) => row.prompt);
const found = [];
const client = new Eigencal({ maxRetries: 20 });
for await (const item of client.scoreBatch(prompts)) found.push(item.result ? item.index : item);
console.log(JSON.stringify(found.sort((a, b) => a - b)));
"""
COUNT, BEFORE = 40, 15
ENDS = {WAITS: "succeeded", SCORES: json.dumps(list(range(COUNT)), separators=(",", ":"))}


@pytest.fixture
def hold() -> Hold:
    return Hold(after=BEFORE)


@pytest.fixture
def server(hold: Hold) -> Iterator[OpenAIServer]:
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities, hold=hold))) as made:
        yield made


@pytest.mark.parametrize("script", ENDS, ids=["wait", "scoreBatch"])
def test_it_goes_on_when_the_service_is_back(
    script: str, hold: Hold, server: OpenAIServer, tmp_path: Path
) -> None:
    port = str(free_port())
    store = f"sqlite:///{tmp_path / 'store.db'}"
    env = {"EIGENCAL_URL": f"http://127.0.0.1:{port}", "ROWS": json.dumps(questions(COUNT))}
    with service(store, server, tmp_path, port=port) as first:
        with started("node", "--input-type=module", "-e", script, cwd=FOLDER, env=env) as client:
            until(lambda: len(asked(server)) > BEFORE or client.poll() is not None)
            first.process.kill()
            first.process.wait()
            hold.go_on()
            with service(store, server, tmp_path, port=port):
                told, complaints = client.communicate(timeout=PATIENCE_S)
    assert client.returncode == 0, complaints
    assert told.strip() == ENDS[script]
    if script == SCORES:  # those that had come are not asked for again
        assert len(asked(server)) < 2 * COUNT
