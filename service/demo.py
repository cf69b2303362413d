"""`make run`: the service on this machine with its embedded LLM, two prompts scored and shown.

The service stays, in the background, with its process id and log in the data folder.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

CERTAIN = "What is the capital of France?"
UNKNOWABLE = "What is the name of my neighbour's dog?"
START_TIMEOUT_S = 600.0  # the first start converts the embedded model's weights
EMBEDDER = "all-MiniLM-L6-v2"


class DemoError(Exception):
    """The demonstration cannot go on; the message says why."""


class BackgroundService:
    """The service as a process of its own, remembered by a file so that a later call finds it."""

    def __init__(self, data_dir: Path, host: str, port: int) -> None:
        self._pid_file = data_dir / "service.pid"
        self.log_file = data_dir / "service.log"
        self._data_dir = data_dir
        self._host = host
        self.url = f"http://{host}:{port}"
        self._port = port

    def stop(self) -> bool:
        """Stop the service that an earlier call has left; return whether there was one."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return False
        self._pid_file.unlink()
        if not _is_service(pid):
            return False
        os.kill(pid, signal.SIGTERM)
        _wait_until(lambda: not _is_service(pid), 35)
        return True

    def start(self) -> None:
        """Start the service detached from this process; raises DemoError when it does not become ready."""
        if _listening(self._host, self._port):
            raise DemoError(
                f"Something else listens on port {self._port}. Choose another: EIGENCAL_PORT=8123 make run"
            )
        self._data_dir.mkdir(parents=True, exist_ok=True)
        environment = {"EIGENCAL_EMBEDDER": EMBEDDER, **os.environ}
        with self.log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "service"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._pid_file.write_text(str(process.pid))
        ready = _wait_until(lambda: process.poll() is not None or self._is_ready(), START_TIMEOUT_S)
        if not ready or process.poll() is not None:
            said = self.log_file.read_text(errors="replace").strip().splitlines()[-5:]
            raise DemoError("The service did not start. Its log ends:\n  " + "\n  ".join(said))

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False


def _listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _is_service(pid: int) -> bool:
    """Tell whether a process is alive and ours: process ids are used again."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    command = Path(f"/proc/{pid}/cmdline")
    return b"service" in command.read_bytes() if command.exists() else True


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    pause = threading.Event()  # never set: its wait is the pause
    while time.monotonic() < end:
        if condition():
            return True
        pause.wait(0.2)
    return False


def score(url: str, prompt: str) -> dict[str, Any]:
    """Score a prompt; raises DemoError with the service's own words when it cannot."""
    response = httpx.post(
        f"{url}/score", json={"prompt": prompt, "return": ["samples", "modes"]}, timeout=300
    )
    body: dict[str, Any] = response.json()
    if response.status_code != 200:
        raise DemoError(f"The service answered {response.status_code}: {body.get('detail')}")
    return body


def show(console: Console, prompt: str, body: dict[str, Any]) -> None:
    """Print one score readably."""
    counts = Counter(body["samples"]).most_common(4)
    drawn = ", ".join(f"{text or '(empty)'} x{count}" for text, count in counts)
    rest = body["num_distinct"] - len(counts)
    table = Table(title=prompt, title_justify="left", title_style="bold", show_header=False, min_width=70)
    table.add_row("answer", body["answer"])
    table.add_row("lambda_max (confidence, 0..1)", f"{body['lambda_max']:.3f}")
    table.add_row("entropy (uncertainty, nats)", f"{body['entropy']:.3f}")
    table.add_row("calibrated", "yes" if body["calibrated"] else "no: raw values")
    table.add_row(f"{body['num_samples']} answers drawn", drawn + (f", {rest} more" if rest > 0 else ""))
    table.add_row("time", f"{body['timings_ms']['total'] / 1000:.1f} s")
    console.print(table)


def run(data_dir: Path, host: str, port: int) -> None:
    """Start the service, score two prompts, and say what to try next."""
    console = Console()
    service = BackgroundService(data_dir, host, port)
    if service.stop():
        console.print("Stopped the service of an earlier run.")
    with console.status("Starting the service (the first start converts the language model's weights) ..."):
        service.start()
    for prompt in (CERTAIN, UNKNOWABLE):
        with console.status("Drawing answers ..."):
            body = score(service.url, prompt)
        show(console, prompt, body)
    console.print(f"The service goes on at {service.url} (its API: {service.url}/docs). Try:")
    line = f"curl -s {service.url}/score -H 'Content-Type: application/json' -d"
    print(f"""  {line} '{{"prompt": "Who wrote Romeo and Juliet?"}}'""")
    console.print(f"Its log: {service.log_file}. Stop it: make stop")
