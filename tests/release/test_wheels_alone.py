"""Each wheel alone, in an empty environment. The tests share a file, because an installation takes long."""

import json
import re
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import ROOT
from tests.release.installed import PROJECTS, SERVICE, Installed, installed

pytestmark = [pytest.mark.dist, pytest.mark.weights]
BLOCK = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"  # in the client's README


def test_service_scores(served: str) -> None:
    with httpx.Client(base_url=served, timeout=300) as http:
        assert http.get("/healthz").raise_for_status().json()["version"] == SERVICE.version
        score = http.post("/score", json={"prompt": "How many legs does a spider have?"}).json()
        contract = http.get("/openapi.json").json()
    assert 0 < score["lambda_max"] <= 1
    assert contract == json.loads((ROOT / "clients" / "openapi.json").read_text())


def test_requirements_are_complete(service_alone: Installed) -> None:
    assert "No broken requirements" in service_alone.run("python", "-m", "pip", "check").stdout


def test_first_block_of_the_clients_readme_scores(
    served: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    [client] = [project for project in PROJECTS if project.name == "eigencal"]
    client_alone = installed(client.wheel, tmp_path_factory)
    file = client_alone.run("python", "-c", "import eigencal; print(eigencal.__file__)").stdout.strip()
    assert Path(file).is_relative_to(client_alone.bin.parent)
    block = BLOCK.search((client.folder / "README.md").read_text())
    assert block
    output = client_alone.run("python", "-c", block[1].replace(ADDRESS, served)).stdout
    assert 0 < float(output.split()[-1]) <= 1
