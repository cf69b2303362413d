"""The Python client's wheel alone, in an environment and a folder that were empty, before a real service."""

import re
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.release.installed import PROJECTS, Installed, Project, installed

pytestmark = [pytest.mark.dist, pytest.mark.weights]
BLOCK = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
README_SAYS = "http://127.0.0.1:8000"
# The service's, or what the service is made of: a client brings none of it.
HEAVY = {"service", "fastapi", "numpy", "torch", "uvicorn"}


@pytest.fixture(scope="module")
def client() -> Project:
    found = [project for project in PROJECTS if project.name == "eigencal"]
    return found[0] if found else pytest.skip("there is no Python client yet")


@pytest.fixture(scope="module")
def client_alone(client: Project, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(client.wheel, tmp_path_factory)


def test_it_is_the_wheel_that_is_imported(client: Project, client_alone: Installed) -> None:
    code = (
        f"import eigencal, sys; print(eigencal.__file__, eigencal.__version__, *{HEAVY} & sys.modules.keys())"
    )
    file, version, *heavy = client_alone.run("python", "-c", code).stdout.split()
    assert Path(file).is_relative_to(client_alone.bin.parent)
    assert not Path(file).is_relative_to(ROOT)
    assert (version, heavy) == (client.version, [])
    assert "No broken requirements" in client_alone.run("python", "-m", "pip", "check").stdout


def test_the_first_lines_of_its_readme_score(client: Project, client_alone: Installed, served: str) -> None:
    shown = BLOCK.search((client.folder / "README.md").read_text())
    assert shown
    assert README_SAYS in shown[1]
    said = client_alone.run("python", "-c", shown[1].replace(README_SAYS, served)).stdout
    *_, lambda_max = said.split()
    assert 0 < float(lambda_max) <= 1
