"""The TypeScript client: its types, its own tests, and the examples of clients/typescript/README.md."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.clients.conftest import labelled
from tests.clients.environments import FROM_HERE, PATIENCE_S, SCORE_KEY
from tests.support.services import Service

pytestmark = pytest.mark.clients
FOLDER = ROOT / "clients" / "typescript"
PACKAGES = FOLDER / "node_modules"
TSC = PACKAGES / "typescript" / "bin" / "tsc"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(BLOCK.findall((FOLDER / "README.md").read_text(encoding="utf-8")))
OFFLINE = ("--offline", "--no-audit", "--no-fund", "--no-update-notifier")
STRICT = ("--strict", "--target", "es2022", "--skipLibCheck", "false", "--module", "nodenext")
TYPES = ("--lib", "es2022", "--typeRoots", PACKAGES / "@types", "--types", "node")
# Patterns of each example's output.
PRINTS = {
    "score.ts": r"Berlin null 0\.",
    "batch.ts": r"[01] 0\.\d+\n[01] 0\.",
    "calibrate.ts": r"succeeded [\s\S]*November is ",
    "errors.ts": r"model_not_found 404 false req_",
}


def run(*command: object, cwd: Path) -> str:
    """Return the output of a command. A failure fails the test."""
    if not PACKAGES.exists():
        pytest.fail("the TypeScript client is not built: make test-clients")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={name: os.environ[name] for name in FROM_HERE if name in os.environ},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package as npm packs it, and the compiled examples of the README."""
    folder = tmp_path_factory.mktemp("typescript")
    copy = folder / "clients" / "typescript"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "*.tgz", "LICENSE"))
    (copy / "node_modules").symlink_to(PACKAGES)
    shutil.copy(ROOT / "LICENSE", folder)
    output = run("npm", "pack", "--json", "--silent", *OFFLINE, cwd=copy)
    tarball = copy / json.loads(output[output.index("[") :])[0]["filename"]
    project = folder / "app"
    project.mkdir()
    (project / "package.json").write_text('{"type": "module", "private": true}')
    run("npm", "install", "--ignore-scripts", *OFFLINE, tarball, cwd=project)
    for name, code in EXAMPLES.items():
        (project / name).write_text(code, encoding="utf-8")
    run("node", TSC, *STRICT, *TYPES, *EXAMPLES, cwd=project)
    return project


def test_types_are_those_of_the_contract(tmp_path: Path) -> None:
    """A failure means that the contract has changed: make openapi-types."""
    run("node", FOLDER / "scripts" / "generate.mjs", tmp_path / "openapi.ts", cwd=FOLDER)
    assert (tmp_path / "openapi.ts").read_bytes() == (FOLDER / "src" / "openapi.ts").read_bytes()


def test_own_tests_pass() -> None:
    run("npm", "test", cwd=FOLDER)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_the_readme(name: str, app: Path, ours: str, deciding: Service) -> None:
    (app / "dev.jsonl").write_text("\n".join(json.dumps(row) for row in labelled()))
    address = str(deciding.http.base_url).rstrip("/") if name == "calibrate.ts" else ours
    script = app / name.replace(".ts", ".js")
    code = script.read_text().replace("http://127.0.0.1:8000", address).replace("the-score-key", SCORE_KEY)
    script.write_text(code)
    assert re.search(PRINTS[name], run("node", script, cwd=app))
