"""The address is bound before loading, reported if it is taken, and opened once all is ready."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from service.cli import cli

ROOT = Path(__file__).parents[2]
# Remote servers that are down: no loading and no waiting.
REMOTE = {"EIGENCAL_EMBEDDER_URL": "http://127.0.0.1:9"}


@contextmanager
def taken() -> Iterator[int]:
    """Yield a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@contextmanager
def service(settings: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run the service with these variables; kill it at the end."""
    command = [sys.executable, "-m", "service"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def url_of(process: subprocess.Popen[str]) -> str:
    """Return the address that the service logs."""
    line = next(line for line in process.stderr or () if "running on" in line)
    return line.split("running on ")[1].split()[0]


def test_port_in_use_is_reported_before_loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with taken() as port:
        monkeypatch.setenv("EIGENCAL_PORT", str(port))
        monkeypatch.setenv("EIGENCAL_DATA_DIR", str(tmp_path / "not-made"))
        result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 2
    assert f"EIGENCAL_PORT={port}" in result.output and "EIGENCAL_HOST=127.0.0.1" in result.output
    assert result.output.count("\n") == 1 and "in use" in result.output
    assert not (tmp_path / "not-made").exists()


def test_torch_and_numpy_threads_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with taken() as port:
        monkeypatch.setenv("EIGENCAL_PORT", str(port))
        CliRunner().invoke(cli, ["serve"])
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["OPENBLAS_NUM_THREADS"]) == ("passive", "1")


def test_process_logs_its_address_answers_and_stops_cleanly(tmp_path: Path) -> None:
    settings = REMOTE | {"EIGENCAL_PORT": "0", "EIGENCAL_DATA_DIR": str(tmp_path)}
    with service(settings) as process:
        url = url_of(process)
        assert httpx.get(f"{url}/healthz", trust_env=False, timeout=60).status_code == 200
        assert stopped(process)


def stopped(process: subprocess.Popen[str]) -> bool:
    """Stop the service; return True if it stopped cleanly."""
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    rest = process.stderr.read()
    assert process.wait() == -signal.SIGTERM
    return "Application shutdown complete" in rest and "Traceback" not in rest
