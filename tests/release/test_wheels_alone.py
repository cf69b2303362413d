"""Each wheel alone, in an environment and a folder that were empty; one file, as installing takes long."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import ROOT
from tests.release.installed import PROJECTS, SERVICE, Installed, Project, installed

pytestmark = [pytest.mark.dist, pytest.mark.weights]
HTML = {"Accept": "text/html"}
BLOCK = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
README_SAYS = "http://127.0.0.1:8000"
# Packages of the service: a client installs none of them.
HEAVY = {"service", "fastapi", "numpy", "torch", "uvicorn"}


def test_it_is_the_wheel_that_runs_and_not_the_checkout(service_alone: Installed) -> None:
    code = "import service, sys; print(service.__file__, service.__version__, *sys.path)"
    file, version, *places = service_alone.run("python", "-c", code).stdout.split()
    assert Path(file).is_relative_to(service_alone.bin.parent)
    assert version == SERVICE.version
    assert not [place for place in places if Path(place).is_relative_to(ROOT)]


def test_what_it_needs_is_declared(service_alone: Installed) -> None:
    assert "No broken requirements" in service_alone.run("python", "-m", "pip", "check").stdout
    helped = service_alone.run("eigencal-service", "--help").stdout
    assert {"serve", "weights"} <= set(re.findall(r"\w+", helped))


def test_it_serves(served: str) -> None:
    with httpx.Client(base_url=served, timeout=300) as http:
        assert http.get("/healthz").raise_for_status().json()["version"] == SERVICE.version
        assert http.get("/readyz").status_code == 200
        score = http.post("/score", json={"prompt": "How many legs does a spider have?"}).json()
        contract = http.get("/openapi.json").json()
    assert 0 < score["lambda_max"] <= 1
    assert score["num_samples"] == 20
    assert contract == json.loads((ROOT / "clients" / "openapi.json").read_text())


@pytest.fixture
def demonstrated(service_alone: Installed) -> Iterator[str]:
    """The output of the demonstration. Its own command stops what it leaves running."""
    try:
        yield service_alone.run("python", "-m", "demo").stdout
    finally:
        assert "Stopped." in service_alone.run("python", "-m", "demo", "--stop").stdout


def test_it_shows_itself_and_its_pages(service_alone: Installed, demonstrated: str) -> None:
    assert "Projection ECE of held-out questions" in demonstrated
    assert "The same prompts, calibrated" in demonstrated
    found = re.search(r"(http://127\.0\.0\.1:\d+)(/calibrations/\S+/report)", demonstrated)
    assert found, demonstrated
    with httpx.Client(base_url=found[1], headers=HTML, timeout=60, follow_redirects=True) as http:
        for path in ("/", "/calibrations", found[2], "/docs"):
            page = http.get(path).raise_for_status()
            assert page.headers["content-type"].startswith("text/html"), path
            assert "</html>" in page.text, path
        report = http.get(found[2]).text
    assert report.count("<svg") >= 2, "the report has its diagrams"
    assert (service_alone.folder / "data" / "service.log").exists()


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
