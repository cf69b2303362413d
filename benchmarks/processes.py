"""Start servers for benchmarks and end-to-end tests, and wait until they answer."""

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
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until the URL answers 200. Raises RuntimeError if the process ends, TimeoutError if too late."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            with urllib.request.urlopen(url, timeout=30) as response:
                if response.status == 200:
                    return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)  # a pause that ends early with the process
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
    """Run a command in a folder, optionally on certain cores, until the block ends.

    `env` is added to the environment of this process, or replaces it without `inherit`.
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
UNCACHED = "benchmarks.uncached"  # the service without caches
