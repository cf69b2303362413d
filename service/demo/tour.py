"""`make run`: the service on this machine with its embedded LLM: scored, calibrated, scored again.

The service stays, in the background, with its process id and log in the data folder. A second run finds the
calibration of the first.
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
STOP_TIMEOUT_S = 35.0  # requests under way get 30 s
TIMEOUT_S = 300.0  # of a call
POLL_S = 0.2
# Where the environment says nothing else: the smaller embedder, which is quicker to start, and few answers
# beside a chat, since the embedded LLM takes seconds for them.
DEFAULTS = {"EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2", "EIGENCAL_CHAT_EFFORT": "low"}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where such a service is reached from here
NAME = "everyday questions"  # of the calibration
PROMPTS = ("What is the capital of France?", "What is the name of my dog?")


class DemoError(Exception):
    """The demonstration cannot go on; the message says why."""


class BackgroundService:
    """The service as a process of its own, remembered by a file so that a later call finds it."""

    def __init__(self, data_dir: Path, host: str, port: int) -> None:
        self._pid_file = data_dir / "service.pid"
        self.log_file = data_dir / "service.log"
        self._host, self._port = ANY_ADDRESS.get(host, host), port
        self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"

    def stop(self) -> bool:
        """Stop the service that an earlier call left, by force in the end; return whether there was one."""
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
        """Start the service detached from this process; raises DemoError when it does not become ready."""
        with socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET) as probe:
            probe.settimeout(5)
            if probe.connect_ex((self._host, self._port)) == 0:
                taken = f"Something else listens on port {self._port}. Choose another"
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
    """Tell whether this process is the service: a process id is given to another program after a restart."""
    if pid <= 0:  # would signal a whole group
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    try:
        return b"-m\0service\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # gone in between, or a system without /proc, where its being alive must do
        return not Path("/proc/self").exists()


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition; return whether it came in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(POLL_S)
    return False


def run(service: BackgroundService, *, key: str, recorded: bool) -> None:
    """Start the service, score, calibrate, score again, say what to try next. Raises DemoError.

    key: bearer key, "" for none; recorded: whether the recorded answers are those that it would draw.
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
    print(f"The service goes on at {service.url}; its API: {service.url}/docs. Try:")
    print(f"  curl -s {service.url}/score{header} -H 'Content-Type: application/json' -d '{body}'")
    print(f"Its log: {service.log_file}\nStop it: make stop")


def walk(url: str, rows: Path, key: str = "") -> None:
    """Play the demonstration on a running service. Raises DemoError, httpx2.TransportError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # trust_env: a proxy of the environment is not the way to this machine.
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
        names = {"active": "by the calibration before it", "raw": "by raw scores"}
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
        # Keys that were made in an earlier run have closed the service to this one.
        remedy = " Set EIGENCAL_ADMIN_KEY to a word of yours, which opens everything, and run this again."
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
