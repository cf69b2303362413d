"""The service as a process in the background, for `make run`: started, remembered by a file, stopped."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from service.demo.data import QUESTIONS, RECORDED

START_TIMEOUT_S = 600.0  # the first start converts the embedded model's weights
STOP_TIMEOUT_S = 35.0  # requests under way get 30 s
# Where the environment says nothing else: the smaller embedder, which is quicker to start; and beside a chat
# few answers and a long wait for them: the embedded LLM takes seconds for what a server draws at once.
DEFAULTS = {
    "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2",
    "EIGENCAL_CHAT_EFFORT": "low",
    "EIGENCAL_CHAT_DEADLINE_S": "60",
}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where such a service is reached from here


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
            _signal(pid, signal.SIGTERM)
            if not wait_until(lambda: not _is_service(pid), STOP_TIMEOUT_S):
                _signal(pid, signal.SIGKILL)
        self._pid_file.unlink(missing_ok=True)
        return was

    def start(self) -> None:
        """Start the service detached from this process; raises DemoError when it does not become ready."""
        if _listening(self._host, self._port):
            raise DemoError(
                f"Something else listens on port {self._port}. Choose another: EIGENCAL_PORT=8123 make run"
            )
        self._data_dir.mkdir(parents=True, exist_ok=True)
        process = self._spawn()
        self._pid_file.write_text(str(process.pid))
        ready = wait_until(lambda: process.poll() is not None or self._is_ready(), START_TIMEOUT_S)
        if not ready or process.poll() is not None:
            raise DemoError(f"The service did not start. {self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of its log, in words."""
        said = self.log_file.read_text(errors="replace").strip().splitlines()[-5:]
        return f"Its log, {self.log_file}, ends:\n  " + "\n  ".join(said)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "service"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**DEFAULTS, **os.environ},
                start_new_session=True,
            )

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def _listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def _is_service(pid: int) -> bool:
    """Tell whether a process is alive and ours: process ids are used again."""
    if pid <= 1:  # to a signal, 0 and -1 mean many processes
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # gone in between, or a system without /proc, where its being alive must do
        return not Path("/proc/self").exists()
    return b"-m\0service\0" in command


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> bool:
    """Wait for a condition; return whether it came in time."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()  # never set: its wait is the pause
    while time.monotonic() < end:
        if condition():
            return True
        pause.wait(every_s)
    return False


# The demonstration's calls: JSON in and out, and its calibration, posted once and watched.

TIMEOUT_S = 300
POLL_S = 0.1
OPTIONS = {"name": "everyday questions", "drawn_by": "service"}
OVER = ("failed", "cancelled")


class Http:
    """A client of one service. Calls raise DemoError when refused, httpx.TransportError when unanswered."""

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # trust_env: a proxy of the environment is not the way to this machine.
        self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON at a path."""
        return _body(self._client.get(path, headers={"Accept": "application/json"}))

    def post(self, path: str, **sent: Any) -> dict[str, Any]:
        """Post what httpx takes (json, data, files, headers) and return the JSON answered."""
        return _body(self._client.post(path, **sent))


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = response.text[:200]
    raise DemoError(f"The service answered {response.status_code}: {said}{_remedy(response)}")


def _remedy(response: httpx.Response) -> str:
    """Return what helps where keys that were made in an earlier run have closed the service to this one."""
    if response.status_code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ""
    return (
        " Keys were made in its database: set EIGENCAL_ADMIN_KEY to a word of yours, which opens everything, "
        "and run this again (docs/operating.md, Keys made while it runs)."
    )


@dataclass(frozen=True, slots=True)
class DevFile:
    """A file to post, and the key under which posting it again is the same job."""

    name: str
    content: bytes
    key: str


def dev_data(*, recorded: bool, setup: str) -> DevFile:
    """Return the questions, with the recorded answers where these are the service's own.

    `setup` names what answers are drawn and embedded with: another set-up needs a calibration of its own.
    """
    path = RECORDED if recorded else QUESTIONS
    content = path.read_bytes()
    digest = hashlib.sha256(content + repr((OPTIONS, setup)).encode()).hexdigest()[:16]
    return DevFile(path.name, content, f"everyday-{digest}")


def calibrate(console: Console, http: Http, dev: DevFile) -> str:
    """Calibrate, or find the calibration of an earlier run; return its id. Raises DemoError when it fails."""
    job = _posted(http, dev)
    if job["state"] == "succeeded":
        console.print(f"Already calibrated on {dev.name} by an earlier run.")
    else:
        console.print(f"Calibrating on {dev.name} ({len(dev.content.splitlines())} questions) ...")
        job = _watched(console, http, job)
    if job["state"] != "succeeded":
        why = (job["error"] or {}).get("detail", "no reason given")
        raise DemoError(f"The calibration was {job['state']}: {why}")
    return str(job["calibration_id"])


def _posted(http: Http, dev: DevFile) -> dict[str, Any]:
    """Return the job of the dev set: that of an earlier run, unless it failed or was cancelled."""
    # A key names one job for ever, also one that failed: every attempt has its own.
    for attempt in count(1):
        job = http.post(
            "/calibrate",
            data=OPTIONS,
            files={"file": (dev.name, dev.content)},
            headers={"Idempotency-Key": f"{dev.key}-{attempt}"},
        )
        if job["state"] not in OVER:
            return job
    raise AssertionError("unreachable")


def _watched(console: Console, http: Http, job: dict[str, Any]) -> dict[str, Any]:
    """Poll the job until it ends, and show how far it is."""
    pause = threading.Event()
    columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console) as progress:
        stages: dict[str, TaskID] = {}
        while job["state"] in ("queued", "running"):
            if name := job["stage"]:
                if name not in stages:
                    stages[name] = progress.add_task(name)
                note = f"{name} {job['note'] or ''}".strip()
                done, total = job["done"] or 0, job["total"]
                progress.update(stages[name], completed=done, total=total, description=note)
            pause.wait(POLL_S)
            job = http.get(f"/jobs/{job['id']}")
        if job["state"] == "succeeded":
            for task in progress.tasks:
                progress.update(task.id, completed=task.total or 0)
    return job


# `make run`: the service on this machine with its embedded LLM: scored, calibrated, scored again.
#
# The service stays, in the background, with its process id and log in the data folder. A second run finds the
# calibration of the first. Everything printed fits into 80 columns.

RIGHT_AND_WRONG = 40  # `NEEDED_OF_A_KIND` of the service, with which this speaks over HTTP alone
CERTAIN = "What is the capital of France?"
UNKNOWABLE = "What is the name of my neighbour's dog?"
# Few answers, and a decision: what a caller would ask for who has to answer.
DECIDING: dict[str, Any] = {"effort": "low", "target_error": 0.4}
FIGURES = (
    ("risk (nats)", "risk"),
    ("projection ECE", "projection_ece"),
    ("projection Brier", "projection_brier"),
)


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
    _say_what_next(console, service, target)


def walk(console: Console, url: str, target: Target) -> None:
    """Go through the demonstration with a service that runs. Raises DemoError, httpx.TransportError."""
    with Http(url, target.key) as http:
        raw = [_score(console, http, prompt, "none") for prompt in (CERTAIN, UNKNOWABLE)]
        for body, prompt in zip(raw, (CERTAIN, UNKNOWABLE), strict=True):
            show_score(console, prompt, body)
        drawn = "" if target.recorded else f"{target.setup} {raw[0]['model']}"
        setup = f"{drawn} {raw[0]['embedder']}"
        calibration_id = calibrate(console, http, dev_data(recorded=target.recorded, setup=setup))
        show_gain(console, http.get(f"/calibrations/{calibration_id}/report"))
        console.print("The whole report, with its plots, for your browser:")
        console.print(f"{url}/calibrations/{calibration_id}/report\n", soft_wrap=True)
        again = {p: _score(console, http, p, "active", **DECIDING) for p in (CERTAIN, UNKNOWABLE)}
        show_again(console, again)
        _say_whose(console, again[CERTAIN], calibration_id)


def _score(console: Console, http: Http, prompt: str, calibration: str, **more: Any) -> dict[str, Any]:
    with console.status("Drawing answers ..."):
        body = {"prompt": prompt, "calibration": calibration, "return": ["samples", "modes"]}
        return http.post("/score", json=body | more)


def _say_whose(console: Console, score: dict[str, Any], calibration_id: str) -> None:
    """Say so when the calibration in force is another than the one shown above."""
    in_force = (score["calibration"] or {}).get("id")
    if in_force != calibration_id:
        console.print(f"Another calibration is in force: {in_force or 'none'}.")


def _say_what_next(console: Console, service: BackgroundService, target: Target) -> None:
    console.print(f"The service goes on at {service.url}, its API is at\n{service.url}/docs.", soft_wrap=True)
    key = " -H 'Authorization: Bearer KEY' \\\n   " if target.key else ""
    body = '{"prompt": "How many legs does a spider have?", "target_error": 0.4}'
    line = f"Try:\n  curl -s {service.url}/score{key} -H 'Content-Type: application/json' \\\n    -d '{body}'"
    console.print(line, soft_wrap=True, markup=False)
    console.print(f"Its log: {service.log_file}\nStop it: make stop", soft_wrap=True)


def show_score(console: Console, prompt: str, body: dict[str, Any]) -> None:
    """Print one raw score."""
    counts = Counter(body["samples"]).most_common(4)
    drawn = ", ".join(f"{text or '(empty)'} x{count}" for text, count in counts)
    rest = body["num_distinct"] - len(counts)
    table = _table(prompt, show_header=False)
    table.add_column(width=29)
    table.add_column(width=40)
    table.add_row("answer", escape(body["answer"]))
    table.add_row("lambda_max (confidence, 0..1)", f"{body['lambda_max']:.3f}")
    table.add_row("entropy (uncertainty, nats)", f"{body['entropy']:.3f}")
    table.add_row("calibrated", "yes" if body["calibrated"] else "no: raw values")
    more = f", {rest} more" if rest > 0 else ""
    table.add_row(f"{body['num_samples']} answers drawn", escape(drawn) + more)
    table.add_row("time", f"{body['timings_ms']['total'] / 1000:.1f} s")
    console.print(table)


def show_gain(console: Console, report: dict[str, Any]) -> None:
    """Print what a calibration does to questions that it was not fitted on, from its report."""
    made = report["calibration"]
    served = {row["map"]: row for row in report["served"]}
    table = _table("On held-out questions (lower is better)")
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="left" if not heading else "right")
    for label, name in FIGURES:
        table.add_row(label, f"{served['raw'][name]:.3f}", f"{served[made['method']][name]:.3f}")
    console.print(table)
    console.print(_parameters(made))
    console.print(_right_or_not(report["correctness"]))
    for warning in report["warnings"]:
        console.print(f"Note: {escape(warning['text'])}")


def _right_or_not(part: dict[str, Any]) -> str:
    """Return what the report says of P(correct), or what would give it, in a line."""
    whole = part["by_num_samples"][-1]
    if whole["why_none"]:
        return (
            "No P(correct), the probability that an answer is right: that takes rows with\n"
            f"at least {RIGHT_AND_WRONG} right answers and as many wrong ones; the report says more."
        )
    log_loss, base = whole["log_loss"], whole["base_log_loss"]
    return (
        "P(correct), the probability that an answer is right: held-out log loss\n"
        f"{log_loss:.3f}, against {base:.3f} by their share of right answers alone."
    )


def _parameters(made: dict[str, Any]) -> str:
    if by := made.get("evidence"):
        a, b = by["evidence_intercept"], by["evidence_slope"]
        return f"Fitted: temperature T = {by['temperature']:.2f}, evidence a = {a:.2f}, b = {b:.2f}"
    depolarization = made["depolarization"]
    g = "" if depolarization is None else f", depolarization g = {depolarization:.2f}"
    return f"Fitted: temperature T = {made['temperature']:.2f}{g}"


def show_again(console: Console, bodies: dict[str, dict[str, Any]]) -> None:
    """Print prompts scored with the active calibration, raw values beside the calibrated."""
    few = {body["num_samples"] for body in bodies.values()}
    drawn = " or ".join(str(number) for number in sorted(few))
    table = _table(f"The same prompts, calibrated, by {drawn} new answers (effort: low)")
    table.add_column("prompt", ratio=3)
    table.add_column("answer", ratio=2)
    table.add_column("lambda_max\nraw -> calibrated", justify="right", no_wrap=True)
    table.add_column("P(correct)\ndecision", justify="right", no_wrap=True)
    for prompt, body in bodies.items():
        raw = body["uncalibrated"]["lambda_max"] if body["calibrated"] else body["lambda_max"]
        after = f"{body['lambda_max']:.3f}" if body["calibrated"] else "raw"
        cells = escape(prompt), escape(body["answer"]), f"{raw:.3f} -> {after}", _decided(body)
        table.add_row(*cells)
    console.print(table)
    error, sure = DECIDING["target_error"], next(iter(bodies.values()))["decision"]["confidence"]
    console.print(
        f"The decision lets answers through so that, {sure:.0%} sure, at most {error:.0%} are wrong."
    )
    for text in {warning["message"] for body in bodies.values() for warning in body["warnings"]}:
        console.print(f"Note: {escape(text)}")


def _decided(body: dict[str, Any]) -> str:
    correct = body["probability_correct"]
    return f"{'none' if correct is None else f'{correct:.3f}'}\n{body['decision']['action']}"


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        show_header=show_header,
        min_width=70,
    )
