"""The service of `make run`, started once per session."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.processes import ROOT, free_port


@dataclass(frozen=True)
class Demo:
    """url: address of the service; said: output of the demonstration."""

    url: str
    said: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run `make run` after the installation, with its own folder and port."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "weights").symlink_to(ROOT / "data" / "weights")
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EIGENCAL_")}
    env = kept | {"EIGENCAL_PORT": str(port), "EIGENCAL_DATA_DIR": str(folder)}
    try:
        said = _demo(env, folder)
        yield Demo(f"http://127.0.0.1:{port}", said)
    finally:
        _demo(env, folder, "--stop")


def _demo(env: dict[str, str], folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "demo", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False
    )
    logs = [log.read_text() for log in folder.glob("*.log")]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    return done.stdout
