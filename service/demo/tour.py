"""`make run`: the service on this machine with its embedded LLM: scored, calibrated, scored again.

The service stays, in the background, with its process id and log in the data folder. A second run finds the
calibration of the first. Everything printed fits into 80 columns.
"""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.demo.data import QUESTIONS, RECORDED

START_TIMEOUT_S = 600.0  # the first start converts the embedded model's weights
STOP_TIMEOUT_S = 35.0  # requests under way get 30 s
TIMEOUT_S = 300.0  # of a call
POLL_S = 0.2
# Where the environment says nothing else: the smaller embedder, which is quicker to start; and beside a chat
# few answers and a long wait for them: the embedded LLM takes seconds for what a server draws at once.
DEFAULTS = {
    "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2",
    "EIGENCAL_CHAT_EFFORT": "low",
    "EIGENCAL_CHAT_DEADLINE_S": "60",
}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where such a service is reached from here

CERTAIN = "What is the capital of France?"
UNKNOWABLE = "What is the name of my neighbour's dog?"
OPTIONS = {"drawn_by": "service", "activate": "always"}
FEW = 10  # labels, the fewest that a calibration takes
# Few answers, and a decision: what a caller would ask for who has to answer.
DECIDING: dict[str, Any] = {"effort": "low", "target_error": 0.4}
FIGURES = {
    "risk (nats)": "risk",
    "projection ECE": "projection_ece",
    "projection Brier": "projection_brier",
}


class DemoError(Exception):
    """The demonstration cannot go on; the message says why."""


class BackgroundService:
    """The service as a process of its own, remembered by a file so that a later call finds it."""

    def __init__(self, data_dir: Path, host: str, port: int) -> None:
        self._data_dir = data_dir
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
        self._data_dir.mkdir(parents=True, exist_ok=True)
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
            raise DemoError(f"The service did not start. {self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of its log, in words."""
        last = self.log_file.read_text(errors="replace").strip().splitlines()[-5:]
        return f"Its log, {self.log_file}, ends:\n  " + "\n  ".join(last)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False).is_success
        except httpx.TransportError:
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


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> bool:
    """Wait for a condition; return whether it came in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(every_s)
    return False


@dataclass(frozen=True, slots=True)
class Target:
    """What is started and how it is spoken to.

    key: bearer key, "" for none; recorded: whether the recorded answers are its own; setup: names what it
    draws answers with, so that another set-up is calibrated anew.
    """

    data_dir: Path
    host: str
    port: int
    key: str = ""
    recorded: bool = True
    setup: str = ""


def run(target: Target) -> None:
    """Start the service, score, calibrate, score again, say what to try next. Raises DemoError."""
    console = Console(highlight=False)
    service = BackgroundService(target.data_dir, target.host, target.port)
    if service.stop():
        console.print("Stopped the service of an earlier run.")
    with console.status("Starting the service (the first start converts the model's weights) ..."):
        service.start()
    try:
        walk(console, service.url, target)
    except httpx.TransportError as error:
        raise DemoError(f"The service no longer answers ({error}). {service.log_end()}") from None
    key = " -H 'Authorization: Bearer KEY' \\\n   " if target.key else ""
    body = '{"prompt": "How many legs does a spider have?", "target_error": 0.4}'
    console.print(
        f"The service goes on at {service.url}, its API is at\n{service.url}/docs.\n"
        f"Try:\n  curl -s {service.url}/score{key} -H 'Content-Type: application/json' \\\n    -d '{body}'\n"
        f"Its log: {service.log_file}\nStop it: make stop",
        soft_wrap=True,
        markup=False,
    )


def walk(console: Console, url: str, target: Target) -> None:
    """Go through the demonstration with a service that runs. Raises DemoError, httpx.TransportError."""
    headers = {"Authorization": f"Bearer {target.key}"} if target.key else {}
    # trust_env: a proxy of the environment is not the way to this machine.
    with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as http:
        first = _scores(console, http)
        show_scores(console, f"The first scores: {served_by(first)}", first)
        drawn = "" if target.recorded else f"{target.setup} {first[CERTAIN]['model']}"
        setup = f"{drawn} {first[CERTAIN]['embedder']}"
        path = RECORDED if target.recorded else QUESTIONS
        if (first[CERTAIN]["calibration"] or {}).get("origin") != "own":
            calibrate(console, http, path, setup, FEW)
            ten = _scores(console, http)
            show_scores(console, f"The same prompts: {served_by(ten)}", ten)
        calibration_id = calibrate(console, http, path, setup)
        report = call(http, "GET", f"/calibrations/{calibration_id}/report")
        show_gain(console, report)
        console.print("The whole report, with its plots, for your browser:")
        console.print(f"{url}/calibrations/{calibration_id}/report\n", soft_wrap=True)
        again = _scores(console, http, calibration="active", **DECIDING)
        show_scores(console, "The same prompts, by all labels and three new answers (effort: low)", again)
        error, sure = DECIDING["target_error"], again[CERTAIN]["decision"]["confidence"]
        console.print(
            f"The decision lets answers through so that, {sure:.0%} sure, at most {error:.0%} are wrong."
        )


def call(http: httpx.Client, method: str, path: str, **sent: Any) -> dict[str, Any]:
    """Return the JSON answered to what httpx takes. Raises DemoError when refused, in the service's words."""
    response = http.request(method, path, **sent)
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    remedy = ""
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        # Keys that were made in an earlier run have closed the service to this one.
        remedy = (
            " Keys were made in its database: set EIGENCAL_ADMIN_KEY to a word of yours, which opens "
            "everything, and run this again (docs/operating.md, Keys made while it runs)."
        )
    raise DemoError(f"The service answered {response.status_code}: {detail}{remedy}")


def _scores(console: Console, http: httpx.Client, **options: Any) -> dict[str, dict[str, Any]]:
    with console.status("Drawing answers ..."):
        prompts = (CERTAIN, UNKNOWABLE)
        return {one: call(http, "POST", "/score", json={"prompt": one, **options}) for one in prompts}


def calibrate(console: Console, http: httpx.Client, path: Path, setup: str, most: int | None = None) -> str:
    """Calibrate on a file, or find the calibration of an earlier run; return its id.

    most: how many of its first rows; None: all. setup: what answers are drawn and embedded with: another
    needs a calibration of its own. Raises DemoError when it fails.
    """
    rows = path.read_bytes().splitlines(keepends=True)[:most]
    content, options = b"".join(rows), OPTIONS | {"name": f"{len(rows)} everyday questions"}
    digest = hashlib.sha256(content + repr((options, setup)).encode()).hexdigest()[:16]
    # A key names one job for ever, also one that failed: every attempt has its own.
    for attempt in count(1):
        key = {"Idempotency-Key": f"everyday-{digest}-{attempt}"}
        file = {"file": (path.name, content)}
        job = call(http, "POST", "/calibrate", data=options, files=file, headers=key)
        if job["state"] not in ("failed", "cancelled"):
            break
    if job["state"] == "succeeded":
        console.print(f"Already calibrated on {path.name} by an earlier run.")
    else:
        console.print(f"Calibrating on {len(rows)} labelled questions of {path.name} ...")
    with console.status("") as status:
        while job["state"] in ("queued", "running"):
            status.update(f"{job['stage'] or 'queued'} {job['done'] or 0}/{job['total'] or '?'}")
            time.sleep(POLL_S)
            job = call(http, "GET", f"/jobs/{job['id']}")
    if job["state"] != "succeeded":
        why = (job["error"] or {}).get("detail", "no reason given")
        raise DemoError(f"The calibration was {job['state']}: {why}")
    return str(job["calibration_id"])


def served_by(bodies: dict[str, dict[str, Any]]) -> str:
    """Return what serves these scores, in words."""
    used = bodies[CERTAIN]["calibration"]
    if used is None:
        return "raw"
    return "by the default calibration, no label yet" if used["origin"] == "default" else "by your own labels"


def show_scores(console: Console, title: str, bodies: dict[str, dict[str, Any]]) -> None:
    """Print prompts with their scores, and what the service warns of."""
    table = Table(title=title, title_justify="left", title_style="bold", min_width=70)
    table.add_column("prompt", ratio=3)
    table.add_column("answer", ratio=2)
    table.add_column("lambda_max\n(raw)", justify="right")
    table.add_column("entropy\n(nats)", justify="right")
    table.add_column("P(correct)\ndecision", justify="right")
    for prompt, body in bodies.items():
        correct, action = body["probability_correct"], (body["decision"] or {}).get("action", "")
        table.add_row(
            escape(prompt),
            escape(body["answer"]),
            f"{body['lambda_max']:.3f}\n({body['uncalibrated']['lambda_max']:.3f})",
            f"{body['entropy']:.3f}",
            f"{'none' if correct is None else f'{correct:.3f}'}\n{action}",
        )
    console.print(table)
    for text in {warning["message"] for body in bodies.values() for warning in body["warnings"]}:
        console.print(f"Note: {escape(text)}")


def show_gain(console: Console, report: dict[str, Any]) -> None:
    """Print what a calibration does to questions that it was not fitted on, from its report."""
    served = {row["map"]: row for row in report["served"]}
    before, after = served["raw"], served[report["calibration"]["method"]]
    title = "On held-out questions (lower is better)"
    table = Table("", "before", "after", title=title, title_justify="left", title_style="bold", min_width=70)
    for label, name in FIGURES.items():
        table.add_row(label, f"{before[name]:.3f}", f"{after[name]:.3f}")
    full = report["correctness"]["by_num_samples"][-1]
    if full["log_loss"] is not None:
        label = "log loss of P(correct), before: share right"
        table.add_row(label, f"{full['base_log_loss']:.3f}", f"{full['log_loss']:.3f}")
    console.print(table)
    opening = report["opening"]
    for question, name in (("To use it", "safe"), ("Promise", "promise"), ("Answers to draw", "answers")):
        console.print(f"{question}: {escape(opening[name])}")
    for warning in report["warnings"]:
        console.print(f"Note: {escape(warning['text'])}")
