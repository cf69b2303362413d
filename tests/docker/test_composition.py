"""The composition of docs/deploying.md, as an operator walks through it: a test goes on where the last ended.

The LLM is a real vLLM server on this machine; the engine and the images are those of `engine.sh`.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import pytest

from demo import data
from tests.docker.composition import KILL, PROJECT, SCORE, Composition, documented, run, until
from tests.e2e.conftest import VllmServer

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
QUESTIONS, SAMPLES = 40, 5
CALLERS = 4
# With the modes that files have in a checkout: the layers are those of the next image, too.
BUILD_THE_COMMIT_BEFORE = (
    "set -o pipefail; git -c tar.umask=0022 archive HEAD~1 | docker build --tag eigencal-service:before"
    " --build-arg TORCH= --build-arg PIP_INDEX_URL --build-arg PIP_EXTRA_INDEX_URL -"
)
FITTED = ("method", "temperature", "depolarization")


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    """The project, not started yet, with the images of this tree and of the commit before."""
    folder = tmp_path_factory.mktemp("project")
    vllm = VllmServer(folder.parent / "vllm.log", host="0.0.0.0")  # where containers reach it
    made = Composition(
        folder,
        COMPOSE_PROFILES="external",
        IMAGE_TAG="before",
        EIGENCAL_LLM_URL=f"http://host.docker.internal:{vllm.port}/v1",
        LLM_SERVERS=f'"host.docker.internal:9 host.docker.internal:{vllm.port}"',  # one of the two is dead
        EIGENCAL_LLM_PRIORITY="true",
        EIGENCAL_LLM_API="completions",
        EIGENCAL_FEW_SHOT=json.dumps(data.FEW_SHOT),
        EIGENCAL_MAX_TOKENS="32",
        EIGENCAL_NUM_SAMPLES=str(SAMPLES),
        EIGENCAL_EMBEDDER="all-MiniLM-L6-v2",
        WEIGHTS="all-MiniLM-L6-v2",
    )
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(vllm.start)
        try:
            run("bash", "-c", BUILD_THE_COMMIT_BEFORE)
            starting.result()
            yield made
        finally:
            made.shell("docker compose --profile '*' down --volumes --timeout 5")
            made.http.close()
            vllm.kill()


def questions() -> bytes:
    lines = data.QUESTIONS.read_bytes().splitlines(keepends=True)
    return b"".join(lines[:QUESTIONS])


def fitted(calibration: dict[str, Any]) -> dict[str, Any]:
    return {name: calibration[name] for name in FITTED}


def in_flight(operated: Composition) -> float:
    (line,) = re.findall(
        r"^eigencal_scores_in_flight (\S+)$", operated.http.get("/metrics").text, re.MULTILINE
    )
    return float(line)


@contextmanager
def load(operated: Composition) -> Iterator[list[tuple[float, int]]]:
    """A few callers, who score until the block ends; yields when each request began, and its status."""
    answered: list[tuple[float, int]] = []
    stop = threading.Event()

    def caller(number: int) -> None:
        body = {"prompt": f"Who wrote Hamlet? {number}", "num_samples": 2}
        with operated.caller(SCORE) as http:
            while not stop.is_set():
                begun = time.monotonic()
                answered.append((begun, http.post("/score", json=body).status_code))

    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [pool.submit(caller, number) for number in range(CALLERS)]
        try:
            yield answered
        finally:
            stop.set()
        for one in callers:
            one.result()


def known(operated: Composition) -> list[Any]:
    """The content of the store that an operator would miss."""
    paths = ("/calibrations", "/jobs", "/keys")
    return [operated.get(path) for path in paths]


def as_before(after: Any, before: Any) -> Any:
    """Return JSON without the fields that an earlier version did not have."""
    if isinstance(after, dict) and isinstance(before, dict):
        return {name: as_before(after[name], before[name]) for name in before if name in after}
    if isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        return [as_before(*pair) for pair in zip(after, before, strict=True)]
    return after


def same_numbers(operated: Composition, calibration: dict[str, Any]) -> None:
    """Fit the rows that a calibration kept once more, undisturbed: it is the same."""
    exported = operated.http.get(f"/calibrations/{calibration['id']}/data").raise_for_status().content
    assert [len(json.loads(line)["samples"]) for line in exported.splitlines()] == [SAMPLES] * QUESTIONS
    again = operated.calibration(operated.calibrate(exported, drawn_by="service", activate="never"))
    assert fitted(again) == pytest.approx(fitted(calibration), abs=1e-9)


def test_what_was_there_before_an_upgrade_is_there_after_it(operated: Composition) -> None:
    operated.up()
    rows = b"".join(data.RECORDED.read_bytes().splitlines(keepends=True)[:QUESTIONS])
    operated.calibration(operated.calibrate(rows, name="recorded"))
    key = operated.http.post("/keys", json={"name": "nightly", "scope": "score"}).raise_for_status().json()
    score, before = operated.score(), known(operated)
    operated.set(IMAGE_TAG="test")
    operated.shell("git() { :; }\n" + documented("git pull"))
    operated.ready()
    assert as_before(known(operated), before) == before
    assert {operated.inspect(one)["Config"]["Image"] for one in operated.replicas()} == {
        "eigencal-service:test"
    }
    with operated.caller(key["key"]) as http:
        assert http.post("/score", json={"prompt": "Who wrote Emma?"}).status_code == 200
    with operated.caller(SCORE) as http:
        kept = http.get(f"/scores/{score['id']}").raise_for_status().json()
    assert as_before(kept, score) == score
    assert httpx.post(f"{operated.url}/score", json={"prompt": "?"}, trust_env=False).status_code == 401


def test_a_calibration_goes_on_where_its_process_was_killed(operated: Composition) -> None:
    job_id = operated.calibrate(questions(), name="killed", activate="always")
    until(lambda: operated.job(job_id)["done"] >= QUESTIONS // 4)
    operated.shell(f"docker compose exec eigencal {KILL} || true")  # its own shell goes with the container
    (replica,) = operated.replicas()
    until(lambda: operated.inspect(replica)["RestartCount"] == 1)
    operated.ready()
    calibration = operated.calibration(job_id)
    # Both as ISO 8601 has them, in UTC.
    assert operated.job(job_id)["finished_at"] > operated.inspect(replica)["State"]["StartedAt"]
    same_numbers(operated, calibration)
    assert operated.score()["calibration"]["id"] == calibration["id"]


def test_the_service_is_confined(operated: Composition) -> None:
    read = "read pid </proc/1/task/1/children; cat /proc/$pid/status"
    status = operated.shell(f"docker compose exec eigencal sh -c '{read}'")
    told = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert told["Uid"] == told["Gid"] == "\t".join(["10001"] * 4)
    assert {told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"
    for folder in ("/", "/app", "/opt/venv", "/etc", "/var/tmp"):
        told = operated.shell(f"docker compose exec eigencal touch {folder}/x 2>&1 || true")
        assert "Read-only file system" in told, folder


def test_sqlite_is_restored_from_the_documented_backup(operated: Composition) -> None:
    before = known(operated)
    assert all(before)
    operated.shell(documented("eigencal:/data/backup.db ."))
    operated.shell(f"docker compose down && docker volume rm {PROJECT}_data")
    operated.up()
    assert known(operated) == [[], [], []]
    operated.shell(documented("backup.db eigencal:/data/"))
    operated.ready()
    assert known(operated) == before


def test_it_stops_within_its_grace_and_finishes_what_it_has_begun(operated: Composition) -> None:
    (replica,) = operated.replicas()
    with ThreadPoolExecutor() as pool:
        under_way = pool.submit(operated.score, num_samples=20, prompt="Tell the story of Emma.")
        until(lambda: in_flight(operated) > 0)
        operated.shell("docker compose stop eigencal")
        under_way.result()
    state = operated.inspect(replica)["State"]
    assert state["ExitCode"] == 128 + 15, state  # of SIGTERM; 137 where it had to be killed


def test_two_replicas_on_postgres_behind_two_proxies_one_killed(operated: Composition) -> None:
    operated.set(
        COMPOSE_PROFILES="external,postgres,router",
        EIGENCAL_LLM_URL="",
        REPLICAS="2",
        POSTGRES_PASSWORD="letters4and0digits",
        EIGENCAL_DATABASE_URL="postgresql://eigencal:${POSTGRES_PASSWORD}@postgres:5432/eigencal",
    )
    operated.up()
    first, second = operated.replicas()
    assert not any(operated.inspect(one)["HostConfig"]["PortBindings"] for one in (first, second))
    job_id = operated.calibrate(questions(), name="taken over")
    until(lambda: operated.job(job_id)["done"] >= QUESTIONS // 4)
    with load(operated) as answered:
        until(lambda: len(answered) >= CALLERS)
        run("docker", "kill", first)
        killed, killed_at = time.monotonic(), datetime.now(UTC).isoformat()
        until(lambda: sum(begun > killed for begun, _ in answered) >= 3 * CALLERS)
    lost = [begun for begun, status in answered if status != 200]
    assert all(begun < killed for begun in lost), "no request is lost but those that were under way there"
    assert len(lost) <= CALLERS
    same_numbers(operated, operated.calibration(job_id))
    assert operated.job(job_id)["finished_at"] > killed_at
    operated.up()
    assert len(operated.replicas()) == 2


def test_postgres_is_restored_from_the_documented_backup(operated: Composition) -> None:
    before = known(operated)
    assert len(before[0]) == 2
    operated.shell(documented("pg_dump"))
    operated.shell(f"docker compose down && docker volume rm {PROJECT}_postgres")
    operated.up()
    assert known(operated) == [[], [], []]
    operated.shell(documented("pg_restore"))
    operated.ready()
    assert known(operated) == before
