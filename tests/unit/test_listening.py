"""The address is taken before anything is loaded, told where it cannot be had, opened once all is ready."""

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

from service.cli import _check_address, cli

ROOT = Path(__file__).parents[2]
# Servers elsewhere, and not up: nothing to load, nothing to wait for.
REMOTE = {"EIGENCAL_LLM_BACKEND": "vllm", "EIGENCAL_EMBEDDER_URL": "http://127.0.0.1:9"}


@contextmanager
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_port_in_use_is_told_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with taken() as port:
        monkeypatch.setenv("EIGENCAL_PORT", str(port))
        monkeypatch.setenv("EIGENCAL_DATA_DIR", str(tmp_path / "not-made"))
        result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 2
    assert f"EIGENCAL_PORT={port}" in result.output and "EIGENCAL_HOST=127.0.0.1" in result.output
    assert result.output.count("\n") == 1 and "in use" in result.output
    assert not (tmp_path / "not-made").exists()


def test_torchs_threads_are_told_not_to_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with taken() as port:
        monkeypatch.setenv("EIGENCAL_PORT", str(port))
        CliRunner().invoke(cli, ["serve"])
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_none_of_ours_is_named(host: str) -> None:
    with pytest.raises(OSError, match=f"EIGENCAL_HOST={host} EIGENCAL_PORT=0 .*[^: ]\\.$"):
        _check_address(host, 0)


def test_the_process_says_where_it_listens_answers_there_and_stops_cleanly(tmp_path: Path) -> None:
    settings = REMOTE | {"EIGENCAL_PORT": "0", "EIGENCAL_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "service"],
        cwd=ROOT,
        env=os.environ | settings,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "running on" in line)
        url = said.split("running on ")[1].split()[0]
        assert httpx.get(f"{url}/healthz", trust_env=False, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == -signal.SIGTERM
    assert "Application shutdown complete" in rest and "Traceback" not in rest
