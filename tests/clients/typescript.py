"""The TypeScript client: its folder, Node in it, and its package as npm installs it somewhere else."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.clients.environments import FROM_HERE, PATIENCE_S

FOLDER = ROOT / "clients" / "typescript"
DIST = FOLDER / "dist"
PACKAGES = FOLDER / "node_modules"
TSC = PACKAGES / "typescript" / "bin" / "tsc"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Nothing is looked up anywhere: the package needs no other.
OFFLINE = ("--offline", "--no-audit", "--no-fund", "--no-update-notifier")


def run(*command: object, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Return the output of a command. A failure fails the test."""
    with started(*command, cwd=cwd, env=env) as process:
        told, complaints = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told + complaints
    return told


@contextmanager
def started(
    *command: object, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends. It inherits only the variables that programs need."""
    if not (PACKAGES.exists() and DIST.exists()):
        pytest.fail("the TypeScript client is not built: make test-clients")
    kept = {name: os.environ[name] for name in FROM_HERE if name in os.environ}
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def readme_blocks() -> dict[str, str]:
    """Return the named blocks of code of the client's README, by name."""
    return dict(BLOCK.findall((FOLDER / "README.md").read_text(encoding="utf-8")))


def packed(folder: Path) -> Path:
    """Pack the client as for a release, in a copy of its files; return the tarball."""
    copy = folder / "clients" / "typescript"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "*.tgz", "LICENSE"))
    (copy / "node_modules").symlink_to(PACKAGES)
    shutil.copy(ROOT / "LICENSE", folder)
    told = run("npm", "pack", "--json", "--silent", *OFFLINE, cwd=copy)
    return copy / json.loads(told[told.index("[") :])[0]["filename"]


def installed(tarball: Path, folder: Path) -> Path:
    """Install the package in an empty folder; return the folder."""
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    run("npm", "install", "--ignore-scripts", *OFFLINE, tarball, cwd=folder)
    return folder
