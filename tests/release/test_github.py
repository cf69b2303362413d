"""The files for GitHub are valid by the schemas of check-jsonschema, and true of this repository.

They have not run on GitHub.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.processes import ROOT

pytestmark = pytest.mark.dist
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": FORMS,
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
TARGET = re.compile(r"^([a-z][\w-]*)(?: [\w-]+)*:(?!=)", re.MULTILINE)
CALL = re.compile(r"\.ci/run ([^\n]*)")
ENVIRONMENTS = {"container", "python", "npm"}


def loaded(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text())
    return found


def targets() -> set[str]:
    """Every target of the makefiles."""
    text = "\n".join(path.read_text() for path in (ROOT / "Makefile", *ROOT.glob("*.mk")))
    return set(TARGET.findall(text))


def run_by_default() -> list[str]:
    """The targets that `.ci/run` runs by default, except the environments, which each target installs."""
    told = re.findall(r"^(?:beside|in_turn) ([\w -]+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    return [name for names in told for name in names.split() if name != "environments"]


def called(workflow: Path) -> set[str]:
    """The targets that a workflow calls, those of its matrices put in."""
    found: set[str] = set()
    for job in loaded(workflow)["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
        for step in job.get("steps", []):
            for names in CALL.findall(step.get("run", "")):
                found |= set(" ".join(matrix if "matrix.target" in names else [names]).split())
    return found


@pytest.mark.parametrize(
    ("schema", "path"),
    [(schema, path) for schema, paths in SCHEMAS.items() for path in paths],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_each_file_is_valid(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_what_there_is(workflow: Path) -> None:
    assert called(workflow) <= targets()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_little_and_not_for_ever(workflow: Path) -> None:
    assert loaded(workflow)["permissions"] == {"contents": "read"}
    for name, job in loaded(workflow)["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 60, name


def test_ci_runs_all_that_must_hold() -> None:
    assert set(run_by_default()) <= targets()
    assert called(GITHUB / "workflows" / "ci.yml") == set(run_by_default())


def test_what_is_published_is_checked_and_approved() -> None:
    jobs = loaded(GITHUB / "workflows" / "release.yml")["jobs"]
    publishing = {name: job for name, job in jobs.items() if "environment" in job}
    assert {job["environment"] for job in publishing.values()} == ENVIRONMENTS
    assert all(set(job["needs"]) == {"checked", "built", "audited"} for job in publishing.values())
    writing = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writing == {*publishing, "release"}
    assert set(jobs["release"]["needs"]) == publishing.keys()


def test_no_secret_is_kept_but_the_one_that_github_makes() -> None:
    for workflow in WORKFLOWS:
        assert set(re.findall(r"secrets\.(\w+)", workflow.read_text())) <= {"GITHUB_TOKEN"}
