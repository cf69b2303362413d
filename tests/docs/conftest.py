"""The service of `make run`, started once per session."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import ROOT, free_port
from tests.support.services import until

ANSWERS = Path(__file__).with_name("bundled_answers.jsonl")


@dataclass(frozen=True)
class Demo:
    """url: address of the service."""

    url: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run `make run` after the installation, with its own folder and port.

    Its LLM's answers to the bundled questions are recorded: asking them takes minutes, and `.ci/run` begins
    with it.
    """
    folder = tmp_path_factory.mktemp("demo")
    (folder / "weights").symlink_to(ROOT / "data" / "weights")
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EIGENCAL_")}
    env = kept | {"EIGENCAL_PORT": str(port), "EIGENCAL_DATA_DIR": str(folder)}
    env |= {"EIGENCAL_GET_TO_KNOW": "false", "EIGENCAL_SELF_CHECK": "false"}
    try:
        _demo(env, folder)
        url = f"http://127.0.0.1:{port}"
        _calibrate(url)
        yield Demo(url)
    finally:
        _demo(env, folder, "--stop")


def _calibrate(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        sent = {"data": {"drawn_by": "service"}, "files": {"file": ("rows.jsonl", ANSWERS.read_bytes())}}
        job = http.post("/calibrate", **sent).raise_for_status().json()
        until(lambda: bool(http.get(f"/jobs/{job['id']}").json()["finished_at"]))
        job = http.get(f"/jobs/{job['id']}").json()
    assert job["activated"], job


def _demo(env: dict[str, str], folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "demo", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    logs = [log.read_text() for log in folder.glob("*.log")]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
