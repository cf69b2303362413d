"""The composition of docs/deploying.md on PostgreSQL, with a real vLLM server on this machine.

`engine.sh` provides the engine and the images.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from demo import data
from tests.docker.composition import KILL, Composition, until
from tests.e2e.conftest import VllmServer
from tools.record_demo import without_answers

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
QUESTIONS, SAMPLES = 40, 5


@pytest.fixture
def composition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    """Build the image, and start the services."""
    folder = tmp_path_factory.mktemp("project")
    vllm = VllmServer(folder.parent / "vllm.log", host="0.0.0.0")  # reachable from containers
    made = Composition(
        folder,
        COMPOSE_PROFILES="external,postgres",
        POSTGRES_PASSWORD="letters4and0digits",
        EIGENCAL_DATABASE_URL="postgresql://eigencal:${POSTGRES_PASSWORD}@postgres:5432/eigencal",
        EIGENCAL_LLM_URL=f"http://host.docker.internal:{vllm.port}/v1",
        EIGENCAL_LLM_API="completions",
        EIGENCAL_PROMPT_TEMPLATE=json.dumps(data.PROMPT_TEMPLATE),
        EIGENCAL_STOP=r"""'["\n"]'""",
        EIGENCAL_MAX_TOKENS="32",
        EIGENCAL_NUM_SAMPLES=str(SAMPLES),
        EIGENCAL_GET_TO_KNOW="false",
        EIGENCAL_EMBEDDER="all-MiniLM-L6-v2",
        WEIGHTS="all-MiniLM-L6-v2",
    )
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(vllm.start)
        try:
            made.shell("docker compose build")
            starting.result()
            made.up()
            yield made
        finally:
            made.down()
            vllm.kill()


def test_a_calibration_survives_a_kill(composition: Composition) -> None:
    assert len(composition.score()["modes"]) >= 1
    bare = without_answers(data.RECORDED.read_text("utf-8"))
    rows = b"".join(bare.splitlines(keepends=True)[:QUESTIONS])
    job_id = composition.calibrate(rows, activate="always")
    until(lambda: composition.job(job_id)["done"] >= QUESTIONS // 4)
    # The shell of this command ends with the container.
    composition.shell(f"docker compose exec eigencal {KILL} || true")
    [replica] = composition.replicas()
    until(lambda: composition.inspect(replica)["RestartCount"] == 1)
    composition.ready()
    calibration = composition.calibration(job_id)
    exported = composition.http.get(f"/calibrations/{calibration['id']}/data").raise_for_status().text
    assert [len(json.loads(line)["samples"]) for line in exported.splitlines()] == [SAMPLES] * QUESTIONS
    assert composition.score()["calibration"]["id"] == calibration["id"]
