"""Each version is defined once, and all other mentions match it."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from service import __version__

ROOT = Path(__file__).parents[2]
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (unreleased|\d{4}-\d\d-\d\d)$", re.MULTILINE)
CLIENTS = sorted(ROOT.glob("clients/*/pyproject.toml"))


def newest(changelog: Path) -> str:
    """Return the version of a changelog's first section."""
    match_ = RELEASE.search(changelog.read_text())
    assert match_, f"{changelog} names no version"
    return match_[1]


def version_of(described: Path) -> str:
    """Return the version of a Python project, from the file named in its pyproject.toml."""
    table: dict[str, Any] = tomllib.loads(described.read_text())
    assert table["project"]["dynamic"] == ["version"]
    module, _, name = table["tool"]["setuptools"]["dynamic"]["version"]["attr"].rpartition(".")
    below = [folder / module.replace(".", "/") for folder in (described.parent, described.parent / "src")]
    files = [path for folder in below for path in (folder / "__init__.py", folder.with_suffix(".py"))]
    (source,) = (path.read_text() for path in files if path.exists())
    match_ = re.search(rf'^{name} = "(.+)"$', source, re.MULTILINE)
    assert match_, f"no {name} in {module}"
    return match_[1]


def test_the_service_and_its_changelog_and_contract_agree() -> None:
    contract = json.loads((ROOT / "clients" / "openapi.json").read_text())
    versions = version_of(ROOT / "pyproject.toml"), newest(ROOT / "CHANGELOG.md"), contract["info"]["version"]
    assert set(versions) == {__version__}


@pytest.mark.parametrize("described", CLIENTS, ids=lambda path: str(path.parent.name))
def test_a_client_and_its_changelog_agree(described: Path) -> None:
    assert newest(described.parent / "CHANGELOG.md") == version_of(described)


def test_citation_names_the_current_version() -> None:
    cited = re.search(r'^version: "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == __version__
