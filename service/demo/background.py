"""The service as a process in the background, for `make run`: started, remembered by a file, stopped."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

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
