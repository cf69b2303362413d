"""The files of a release contain all sources of the project, and nothing of the build machine."""

import email.message
import email.parser
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.release.installed import DIST, PROJECTS, SERVICE, Project

pytestmark = [pytest.mark.dist, pytest.mark.parametrize("project", PROJECTS, ids=str)]
NOT_SHIPPED = {"lab", "tests", "tools", "benchmarks", "docs", "data", "docker", "clients"}
NO_SOURCES = re.compile(r"\.pyc$|(^|/)(__pycache__|\.env|node_modules)(/|$)|\.(db|log|safetensors)$")


def in_wheel(project: Project) -> dict[str, bytes]:
    with zipfile.ZipFile(project.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def in_sdist(project: Project) -> dict[str, bytes]:
    """The files of the source distribution, by their path below its only folder."""
    with tarfile.open(project.built(".tar.gz")) as archive:
        files = [(member, archive.extractfile(member)) for member in archive if member.isfile()]
        return {member.name.partition("/")[2]: file.read() for member, file in files if file is not None}


def metadata(project: Project) -> email.message.Message:
    (name,) = (name for name in in_wheel(project) if name.endswith(".dist-info/METADATA"))
    return email.parser.BytesParser().parsebytes(in_wheel(project)[name])


def packages(project: Project) -> set[str]:
    """The folders at the top of the wheel, but for its metadata."""
    return {name.split("/")[0] for name in in_wheel(project) if ".dist-info/" not in name}


def sources(project: Project) -> dict[str, bytes]:
    """The files of the project's packages that git has or would take."""
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        *packages(project),
        ":!service/console/web",
    ]
    told = subprocess.run(command, cwd=project.sources, capture_output=True, text=True, check=True).stdout
    found = {name: project.sources / name for name in told.splitlines()}
    return {name: path.read_bytes() for name, path in found.items() if path.exists()}


def test_the_wheel_is_the_packages_of_the_checkout_byte_for_byte(project: Project) -> None:
    shipped = {name: data for name, data in in_wheel(project).items() if ".dist-info/" not in name}
    ours = sources(project)
    assert shipped.keys() == ours.keys()
    assert [name for name in ours if ours[name] != shipped[name]] == [], "run: make dist"
    assert any(name.endswith("/py.typed") for name in shipped)


def test_the_source_distribution_has_what_the_wheel_has(project: Project) -> None:
    below = "src/" if project.sources.name == "src" else ""
    given = in_sdist(project)
    for name, data in sources(project).items():
        assert given[below + name] == data, name
    assert {"pyproject.toml", "README.md", "LICENSE"} <= given.keys()


def test_nothing_else_is_shipped(project: Project) -> None:
    assert packages(project).isdisjoint(NOT_SHIPPED)
    for files in (in_wheel(project), in_sdist(project)):
        assert [name for name in files if NO_SOURCES.search(name)] == []
        assert {name.split("/")[0] for name in files if "/" in name}.isdisjoint(NOT_SHIPPED)


def test_nothing_tells_of_the_machine_that_built_it(project: Project) -> None:
    places = {str(ROOT), str(Path.home())} - {"/"}
    for files in (in_wheel(project), in_sdist(project)):
        for name, data in files.items():
            assert not [place for place in places if f"{place}/".encode() in data], name


def test_the_metadata_say_what_is_known(project: Project) -> None:
    told, described = metadata(project), project.described
    assert (told["Name"], told["Version"]) == (project.name, project.version)
    assert told["Summary"] == described["description"]
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_all("License-File") == ["LICENSE"]
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"].startswith("text/markdown")
    assert told.get_payload() == (project.folder / "README.md").read_text()
    assert told.get_all("Project-URL") is None, "no address of the project is known"


def test_the_licence_goes_along(project: Project) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    (name,) = (name for name in in_wheel(project) if name.endswith(".dist-info/licenses/LICENSE"))
    assert in_wheel(project)[name] == in_sdist(project)["LICENSE"] == licence


def test_dist_holds_nothing_else(project: Project) -> None:
    ours = {path for one in PROJECTS for path in (one.wheel, one.built(".tar.gz"))}
    ours.add(SERVICE.built(".cdx.json"))
    assert project.wheel in ours
    assert {path for path in DIST.iterdir() if path.suffix != ".tgz"} == ours
