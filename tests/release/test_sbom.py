"""The bill of materials: the pinned Python packages of the image, and nothing else."""

import json
import re
from typing import Any

import pytest

from benchmarks.processes import ROOT
from tests.release.installed import DIST, SERVICE

pytestmark = pytest.mark.dist
PINNED = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIST / f"eigencal_service-{SERVICE.version}.cdx.json").read_text())
    return found


def test_it_is_of_this_release(document: dict[str, Any]) -> None:
    about = document["metadata"]["component"]
    assert (document["bomFormat"], about["name"], about["version"]) == (
        "CycloneDX",
        SERVICE.name,
        SERVICE.version,
    )


def test_it_lists_what_the_service_needs_as_pinned(document: dict[str, Any]) -> None:
    # Without the build tag: torch 2.13.0+cpu is 2.13.0.
    listed = {canonical(one["name"]): one["version"].split("+")[0] for one in document["components"]}
    pinned = {canonical(name): version for name, version in PINNED.items()}
    asked = SERVICE.described["dependencies"]
    for extra in ("demo", "otel"):
        asked = [*asked, *SERVICE.described["optional-dependencies"][extra]]
    needed = {canonical(re.split(r"[^\w.-]", one)[0]) for one in asked}
    assert needed <= listed.keys()
    assert {name: version for name, version in listed.items() if pinned.get(name) != version} == {}
    assert listed.keys().isdisjoint({"pytest", "ruff", "mypy", "mkdocs-material"})
