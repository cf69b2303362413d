"""The built files, and environments with one wheel and nothing of this checkout."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.processes import ROOT

DIST = ROOT / "dist"
PATIENCE_S = 600  # gigabytes are unpacked
# Inherited variables. None leads to this checkout or to settings of a developer.
FROM_HERE = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
FOR_PIP = ("PIP_", "SSL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class Project:
    """A Python project in this repository."""

    folder: Path

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return str(tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]["name"])

    @property
    def sources(self) -> Path:
        src = self.folder / "src"
        return src if src.is_dir() else self.folder

    def built(self, suffix: str) -> Path:
        """Return the only file of this project in dist/ with this suffix."""
        found = sorted(DIST.glob(f"{self.name.replace('-', '_')}-[0-9]*{suffix}"))
        assert len(found) == 1, f"{self.name}: {found} in dist/; run: make dist"
        return found[0]

    @property
    def wheel(self) -> Path:
        return self.built(".whl")

    @property
    def version(self) -> str:
        """Return the version in the wheel's name."""
        return self.wheel.name.split("-")[1]


SERVICE = Project(ROOT)
PROJECTS = [SERVICE, *(Project(path.parent) for path in sorted(ROOT.glob("clients/*/pyproject.toml")))]


@dataclass(frozen=True)
class Installed:
    """A virtual environment, and a folder outside of the checkout in which its commands run."""

    bin: Path
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        kept = {name: os.environ[name] for name in FROM_HERE if name in os.environ}
        pip = {name: value for name, value in os.environ.items() if name.upper().startswith(FOR_PIP)}
        return kept | pip | self.settings | {"TOKENIZERS_PARALLELISM": "false", "COLUMNS": "80"}

    def run(self, command: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment and check its exit code."""
        done = subprocess.run(
            [str(self.bin / command), *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, f"{command} {arguments}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done


def installed(wheel: Path, factory: pytest.TempPathFactory, *, extra: str = "", **settings: str) -> Installed:
    """Install one wheel and the pinned versions of its requirements into an empty environment."""
    folder = factory.mktemp("installed")
    assert not folder.is_relative_to(ROOT)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=PATIENCE_S)
    (folder / "empty").mkdir()
    made = Installed(folder / "venv" / "bin", folder / "empty", settings)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    made.run(
        "python",
        *["-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"],
        "-c",
        f"{ROOT}/constraints.txt",
        what,
    )
    return made
