"""Starting servers for benchmarks and end-to-end tests, and waiting until they answer."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Return once the URL answers 200; raise when the process ends or the time is over."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            with urllib.request.urlopen(url, timeout=30) as response:
                if response.status == 200:
                    return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)  # waits without a clock of our own
    raise TimeoutError(f"{url} did not answer within {timeout_s} s")


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    cores: set[int] | None = None,
    log: Path | None = None,
    folder: Path = ROOT,
    inherit: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a folder, on certain cores if asked for, until the block ends.

    `env` is beside this process's environment, or instead of it where nothing is to be inherited.
    """
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("wb")) if log else subprocess.DEVNULL
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**(os.environ if inherit else {}), **(env or {})},
            stdout=out,
            stderr=subprocess.STDOUT if log else None,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


PYTHON = sys.executable
UNCACHED = "benchmarks.uncached"  # the service without a cache of vectors
