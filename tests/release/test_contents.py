"""The wheels and source distributions contain the sources of their projects, and nothing else."""

import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.release.installed import PROJECTS, Project

pytestmark = [pytest.mark.dist, pytest.mark.parametrize("project", PROJECTS, ids=str)]
NOT_SHIPPED = {"lab", "tests", "tools", "benchmarks", "docs", "data", "docker", "clients"}
NO_SOURCES = re.compile(r"\.pyc$|(^|/)(__pycache__|\.env|node_modules)(/|$)|\.(db|log|safetensors)$")


def in_wheel(project: Project) -> dict[str, bytes]:
    """Return the files of the wheel, without its metadata."""
    with zipfile.ZipFile(project.wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def in_sdist(project: Project) -> dict[str, bytes]:
    """Return the files of the source distribution, by their path below its only folder."""
    with tarfile.open(project.built(".tar.gz")) as archive:
        files = [(member, archive.extractfile(member)) for member in archive if member.isfile()]
        return {member.name.partition("/")[2]: file.read() for member, file in files if file is not None}


def sources(project: Project) -> dict[str, bytes]:
    """Return the files of the wheel's packages in git."""
    packages = {name.split("/")[0] for name in in_wheel(project)}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    command = [*listed, *packages, ":!service/console/web"]
    output = subprocess.run(command, cwd=project.sources, capture_output=True, text=True, check=True).stdout
    paths = {name: project.sources / name for name in output.splitlines()}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def test_wheel_contains_the_packages_byte_for_byte(project: Project) -> None:
    assert in_wheel(project) == sources(project), "run: make dist"


def test_source_distribution_contains_the_sources(project: Project) -> None:
    below = "src/" if project.sources.name == "src" else ""
    files = in_sdist(project)
    assert {below + name: data for name, data in sources(project).items()}.items() <= files.items()
    assert {"pyproject.toml", "README.md", "LICENSE"} <= files.keys()


def test_nothing_else_is_shipped(project: Project) -> None:
    machine = {f"{path}/".encode() for path in {str(ROOT), str(Path.home())} - {"/"}}
    for files in (in_wheel(project), in_sdist(project)):
        assert [name for name in files if NO_SOURCES.search(name)] == []
        assert {name.split("/")[0] for name in files if "/" in name}.isdisjoint(NOT_SHIPPED)
        assert [name for name, data in files.items() if any(path in data for path in machine)] == []
