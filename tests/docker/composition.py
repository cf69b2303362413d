"""A copy of the composition in its own folder, with an .env, and `docker compose` in it."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx

from benchmarks.processes import ROOT, free_port
from tests.support.services import PATIENCE_S

PROJECT = "eigencal-test"  # not `eigencal`, which may have volumes on this machine
ADMIN, SCORE = "admin-key-of-the-tests", "score-key-of-the-tests"

KEPT = re.compile("PATH$|HOME$|DOCKER_|PIP_")  # other variables of the shell would override .env
# In a container, kills the service's process. Docker restarts the container.
KILL = (
    "python -c "
    "\"import os; [os.kill(int(pid), 9) for pid in open('/proc/1/task/1/children').read().split()]\""
)
IMPATIENT = """
services:
  eigencal:
    healthcheck: {interval: 2s}
"""


def run(*command: str, folder: Path = ROOT, **options: Any) -> str:
    """Run a command and return its output. A failure raises with its output."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=1800, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def until(condition: Callable[[], bool], seen: Callable[[], str] = lambda: "timeout") -> None:
    """Wait for a condition. seen: returns the message of a failure."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, seen()
        time.sleep(0.2)


class Composition:
    """One Compose project, and clients of its service."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self._take_the_tree()
        shutil.copy(folder / ".env.example", folder / ".env")
        (folder / "docker-compose.override.yml").write_text(IMPATIENT)
        port = free_port()
        self.set(
            PUBLISH_PORT=str(port), EIGENCAL_ADMIN_KEY=ADMIN, EIGENCAL_SCORE_KEY=SCORE, TORCH="", **settings
        )
        self.url = f"http://127.0.0.1:{port}"
        self.http = self.caller(ADMIN)

    def _take_the_tree(self) -> None:
        built_of = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
        listed = ["Dockerfile", ".dockerignore", ".env.example", "docker", "docker-compose.yml", *built_of]
        names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *listed).split(
            "\n"
        )
        for name in filter(None, names):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)

    def caller(self, key: str) -> httpx.Client:
        """Return a client with this key."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False)

    def set(self, **settings: str) -> None:
        """Set variables in .env."""
        text = (self.folder / ".env").read_text()
        for name, value in settings.items():
            line = f"{name}={value}"
            text, offered = re.subn(rf"^#?{name}=.*$", lambda _, line=line: line, text, count=1, flags=re.M)
            text += "" if offered else f"{line}\n"
        (self.folder / ".env").write_text(text)

    def shell(self, commands: str) -> str:
        """Run commands in the project's folder."""
        environment = {name: value for name, value in os.environ.items() if KEPT.match(name)}
        environment["COMPOSE_PROJECT_NAME"] = PROJECT
        return run("bash", "-euo", "pipefail", "-c", commands, folder=self.folder, env=environment)

    def up(self) -> None:
        """Start the services of .env, and wait until the service is ready."""
        self.shell("docker compose up -d")
        self.ready()

    def down(self) -> None:
        """Remove the containers and volumes."""
        self.shell("docker compose --profile '*' down --volumes --timeout 5")
        self.http.close()

    def ready(self) -> None:
        """Wait until all replicas are healthy and the service is ready."""
        until(
            lambda: (
                {self.inspect(one)["State"]["Health"]["Status"] for one in self.replicas()} == {"healthy"}
            ),
            self._state,
        )
        until(self._is_ready, self._state)

    def _state(self) -> str:
        """Return the states and last log lines of the containers."""
        return self.shell("docker compose ps --all; docker compose logs --tail 40")

    def _is_ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False  # the proxy may not have started

    def replicas(self) -> list[str]:
        """Return the ids of the service's containers, running or not."""
        return self.shell("docker compose ps --all --quiet eigencal").split()

    def inspect(self, container: str) -> dict[str, Any]:
        """Return the engine's description of a container."""
        found: dict[str, Any] = json.loads(run("docker", "inspect", container))[0]
        return found

    def get(self, path: str) -> Any:
        """Return the response of a path to the admin."""
        return self.http.get(path).raise_for_status().json()

    def score(self, **body: Any) -> dict[str, Any]:
        """Score with the score key."""
        with self.caller(SCORE) as http:
            found = http.post("/score", json={"prompt": "Who wrote Hamlet?", **body})
        assert found.status_code == 200, found.text
        return dict(found.json())

    def calibrate(self, rows: bytes, **options: str) -> str:
        """Post dev rows and return the job's id."""
        sent = self.http.post("/calibrate", files={"file": ("rows.jsonl", rows)}, data=options)
        assert sent.status_code == 202, sent.text
        return str(sent.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job that has not failed."""
        found = self.get(f"/jobs/{job_id}")
        assert found["state"] not in ("failed", "cancelled"), found
        return dict(found)

    def calibration(self, job_id: str) -> dict[str, Any]:
        """Wait for the job's calibration."""
        until(lambda: self.job(job_id)["state"] == "succeeded")
        return dict(self.get(f"/calibrations/{self.job(job_id)['calibration_id']}"))
