"""`make run`: start the service with its embedded LLM, score, calibrate, score again.

The service keeps running in the background, with its process id and log in the data folder. A second run uses
the calibration of the first.
"""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from service.demo.data import QUESTIONS, RECORDED

START_TIMEOUT_S = 600.0  # the first start converts the embedded model's weights
STOP_TIMEOUT_S = 35.0  # running requests get 30 s
TIMEOUT_S = 300.0  # per call
POLL_S = 0.2
# Defaults for variables that are not set: the smaller embedder, which starts faster, and few answers per
# chat, because the embedded LLM takes seconds for them.
DEFAULTS = {"EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2", "EIGENCAL_CHAT_EFFORT": "low"}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # address to reach such a service locally
NAME = "everyday questions"  # of the calibration
PROMPTS = ("What is the capital of France?", "What is the name of my dog?")


class DemoError(Exception):
    """The demonstration cannot go on; the message says why."""


class BackgroundService:
    """The service as a separate process. A file stores the process id, so that a later call finds it."""

    def __init__(self, data_dir: Path, host: str, port: int) -> None:
        self._pid_file = data_dir / "service.pid"
        self.log_file = data_dir / "service.log"
        self._host, self._port = ANY_ADDRESS.get(host, host), port
        self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"

    def stop(self) -> bool:
        """Stop the service of an earlier call, by force after a timeout. Return True if there was one."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return False
        was = _is_service(pid)
        if was:
            os.kill(pid, signal.SIGTERM)
            if not wait_until(lambda: not _is_service(pid), STOP_TIMEOUT_S):
                os.kill(pid, signal.SIGKILL)
        self._pid_file.unlink(missing_ok=True)
        return was

    def start(self) -> None:
        """Start the service detached from this process. Raises DemoError if it does not become ready."""
        with socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET) as probe:
            probe.settimeout(5)
            if probe.connect_ex((self._host, self._port)) == 0:
                taken = f"Another program uses port {self._port}. Choose another port"
                raise DemoError(f"{taken}: EIGENCAL_PORT=8123 make run")
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "service"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**DEFAULTS, **os.environ},
                start_new_session=True,
            )
        self._pid_file.write_text(str(process.pid))
        ready = wait_until(lambda: process.poll() is not None or self._is_ready(), START_TIMEOUT_S)
        if not ready or process.poll() is not None:
            last = self.log_file.read_text(errors="replace").strip().splitlines()[-5:]
            shown = "\n  ".join([f"The service did not start. Its log, {self.log_file}, ends:", *last])
            raise DemoError(shown)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=10, trust_env=False).is_success
        except httpx2.TransportError:
            return False


def _is_service(pid: int) -> bool:
    """Return True if this process is the service. The id may belong to another program after a restart."""
    if pid <= 0:  # would signal a process group
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    try:
        return b"-m\0service\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process has just ended, or there is no /proc: then a live process is enough
        return not Path("/proc/self").exists()


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition. Return True if it was met in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(POLL_S)
    return False


def run(service: BackgroundService, *, key: str, recorded: bool) -> None:
    """Start the service, score, calibrate, score again, and print next steps. Raises DemoError.

    key: bearer key, "" for none. recorded: True to calibrate on the recorded answers.
    """
    if service.stop():
        print("Stopped the service of an earlier run.")
    print("Starting the service (the first start converts the model's weights) ...", flush=True)
    service.start()
    try:
        walk(service.url, RECORDED if recorded else QUESTIONS, key)
    except httpx2.TransportError as error:
        raise DemoError(f"The service no longer answers ({error}): {service.log_file}") from None
    header = " -H 'Authorization: Bearer KEY'" if key else ""
    body = '{"prompt": "How many legs does a spider have?"}'
    print(f"The service keeps running at {service.url}; its API: {service.url}/docs. Try:")
    print(f"  curl -s {service.url}/score{header} -H 'Content-Type: application/json' -d '{body}'")
    print(f"Its log: {service.log_file}\nStop it: make stop")


def walk(url: str, rows: Path, key: str = "") -> None:
    """Run the demonstration on a running service. Raises DemoError, httpx2.TransportError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # trust_env=False: a proxy from the environment does not lead to this machine.
    with httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as http:
        calibration = show_scores(http, "The first scores").get("calibration") or {}
        if calibration.get("origin") == "own":
            print("Calibrated by an earlier run.")
            calibration_id = calibration["id"]
        else:
            calibration_id = calibrate(http, rows)
            show_scores(http, "The same prompts, calibrated")
        report = call(http, "GET", f"/calibrations/{calibration_id}/report")
        error, opening = {row["map"]: row["projection_ece"] for row in report["served"]}, report["opening"]
        rival = "active" if "active" in error else "raw"
        names = {"active": "by the previous calibration", "raw": "by raw scores"}
        before, after = error[rival], error[report["calibration"]["method"]]
        print(f"{opening['verdict']} {opening['safe']}")
        print(f"Projection ECE of held-out questions: {before:.3f} {names[rival]}, {after:.3f} by this one.")
        print(f"Promise: {opening['promise']}")
        print(f"The whole report, for your browser:\n{url}/calibrations/{calibration_id}/report\n")


def call(http: httpx2.Client, method: str, path: str, **sent: Any) -> dict[str, Any]:
    """Send a request with the arguments of httpx2 and return its JSON. Raises DemoError for a refusal."""
    response = http.request(method, path, **sent)
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    remedy = ""
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        # The service requires a key because an earlier run created keys.
        remedy = " Set EIGENCAL_ADMIN_KEY to a secret of yours, which allows everything, and run this again."
    raise DemoError(f"The service answered {response.status_code}: {response.text[:400]}{remedy}")


def calibrate(http: httpx2.Client, path: Path) -> str:
    """Calibrate on a file; return the calibration's id. Raises DemoError when it fails."""
    print(f"Calibrating on other questions with their right answers ({path.name}) ...", flush=True)
    options = {"drawn_by": "service", "name": NAME}
    job = call(http, "POST", "/calibrate", data=options, files={"file": (path.name, path.read_bytes())})
    while job["state"] in ("queued", "running"):
        time.sleep(POLL_S)
        job = call(http, "GET", f"/jobs/{job['id']}")
    if job["state"] != "succeeded":
        why = (job["error"] or {}).get("detail", "no reason given")
        raise DemoError(f"The calibration was {job['state']}: {why}")
    print(job["decision"])
    return str(job["calibration_id"])


def show_scores(http: httpx2.Client, title: str, **options: Any) -> dict[str, Any]:
    """Score the prompts and print their scores; return the last one."""
    print(f"\n{title}:", flush=True)
    for prompt in PROMPTS:
        score = call(http, "POST", "/score", json={"prompt": prompt, **options})
        raw, decision = score["uncalibrated"]["lambda_max"], score["decision"]
        print(f"  {prompt} {textwrap.shorten(score['answer'], 40)}")
        print(f"    lambda_max {score['lambda_max']:.3f} (raw {raw:.3f}), {score['entropy']:.3f} nats")
        if decision:
            print(f"    Decision: {decision['action']}. {decision['reason']}")
    if not decision:
        print("  No decisions yet. " + " ".join(warning["message"] for warning in score["warnings"]))
    print(flush=True)
    return score
