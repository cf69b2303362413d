"""The TypeScript client: made from the contract, right by its own tests, and against a running service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.errors import STATUS
from tests.clients.conftest import labelled
from tests.clients.environments import SCORE_KEY
from tests.clients.typescript import DIST, FOLDER, TSC, run
from tests.support.openai_server import Exchange, OpenAIServer, hang, serving_in_thread
from tests.support.services import Service, llm_and_embedder, service, until
from tests.support.services import cities as answer_with_cities

pytestmark = pytest.mark.clients


def test_the_types_are_those_of_the_contract(tmp_path: Path) -> None:
    """Where this fails, the contract has changed: make openapi-types."""
    run("node", FOLDER / "scripts" / "generate.mjs", tmp_path / "openapi.ts", cwd=FOLDER)
    assert (tmp_path / "openapi.ts").read_bytes() == (FOLDER / "src" / "openapi.ts").read_bytes()


def test_what_is_tested_is_what_the_sources_make(tmp_path: Path) -> None:
    """It compiles strictly, too."""
    run("node", TSC, "-p", "tsconfig.build.json", "--outDir", tmp_path, cwd=FOLDER)
    assert contents(tmp_path) == contents(DIST)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_its_own_tests_pass() -> None:
    files = sorted((FOLDER / "tests").glob("*.test.mjs"))
    assert "# fail 0" in run("node", "--test", "--test-reporter=tap", *files, cwd=FOLDER)


def test_every_code_of_the_service_has_a_class() -> None:
    code = "import { BY_CODE } from './dist/problems.js'; console.log(JSON.stringify(Object.keys(BY_CODE)))"
    told = run("node", "--input-type=module", "-e", code, cwd=FOLDER)
    assert set(json.loads(told)) == set(STATUS)


def test_the_lock_file_names_no_host_and_package_json_no_dependency() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]
    assert "dependencies" not in json.loads((FOLDER / "package.json").read_text())


def test_a_running_service(ours: str, deciding: Service, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(labelled()))
    env = {
        "EIGENCAL_URL": ours,
        "EIGENCAL_KEY": SCORE_KEY,
        "CALIBRATED_URL": str(deciding.http.base_url),
        "ROWS": str(rows),
    }
    assert "# fail 0" in run("node", "--test", "--test-reporter=tap", "tests/live.mjs", cwd=FOLDER, env=env)


async def cities_or_nothing(exchange: Exchange) -> None:
    """Answer one prompt, and no other."""
    answers = exchange.body["messages"][-1]["content"] == "question 1"
    await (answer_with_cities if answers else hang)(exchange)


@pytest.fixture
def hanging() -> Iterator[OpenAIServer]:
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities_or_nothing))) as made:
        yield made


LEAVES = """
import { Eigencal } from "./dist/index.js";
for await (const item of new Eigencal().scoreBatch(["question 1", "question 2", "question 3"])) {
  console.log(item.index, item.result.num_samples);
  break;
}
"""


def test_a_loop_that_is_left_lets_go_of_the_llm(hanging: OpenAIServer, tmp_path: Path) -> None:
    with service(f"sqlite:///{tmp_path / 'store.db'}", hanging, tmp_path) as served:
        env = {"EIGENCAL_URL": str(served.http.base_url)}
        assert run("node", "--input-type=module", "-e", LEAVES, cwd=FOLDER, env=env) == "0 5\n"
        until(lambda: hanging.disconnects == 2)
