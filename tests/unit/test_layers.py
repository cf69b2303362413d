"""Imports point one way: mathematics imports nothing of ours, and packages do not import the wiring."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"
CLIENT = ROOT / "clients" / "python" / "src" / "eigencal"
# The wiring, which no package imports.
WIRING = {"app", "settings", "cli", "demo"}


def imported(path: Path) -> Iterator[str]:
    """Yield all modules imported by a file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@functools.cache
def rooms() -> dict[str, set[str]]:
    """Return the imports of each package of the service from other packages."""
    results: dict[str, set[str]] = {}
    for path in SERVICE.rglob("*.py"):
        room = path.relative_to(SERVICE).with_suffix("").parts[0]
        ours = {name for name in imported(path) if name.split(".")[0] == "service"}
        results.setdefault(room, set()).update((*name.split("."), "")[1] for name in ours)
    return {room: names - {room, ""} for room, names in results.items()}


def test_mathematics_imports_nothing_of_the_service() -> None:
    assert rooms()["spectral"] == set()


def test_packages_do_not_import_the_wiring() -> None:
    inner = {
        room: names for room, names in rooms().items() if room not in WIRING | {"__main__", "evaluation"}
    }
    assert {room: names & WIRING for room, names in inner.items() if names & WIRING} == {}


def test_shipped_code_imports_only_shipped_code() -> None:
    for path in SERVICE.rglob("*.py"):
        assert not {"eigencal", "tools", "tests", "benchmarks"} & {
            name.split(".")[0] for name in imported(path)
        }
    for path in CLIENT.rglob("*.py"):
        assert not {"service", "tools", "tests", "benchmarks"} & {
            name.split(".")[0] for name in imported(path)
        }


def test_serving_imports_the_evaluation_only_on_demand() -> None:
    """Nothing imports the package at module level; the wiring and the command line do so inside functions."""
    users = set()
    for path in SERVICE.rglob("*.py"):
        if "evaluation" not in path.relative_to(SERVICE).parts:
            of_module = {name for node in ast.parse(path.read_text()).body for name in _names(node)}
            assert not any(name.startswith("service.evaluation") for name in of_module), path
            if any(name.startswith("service.evaluation") for name in imported(path)):
                users.add(path.name)
    assert users == {"app.py", "cli.py"}


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_settings_are_read_in_one_place() -> None:
    assert {room for room, names in rooms().items() if "settings" in names} == {"app", "cli"}


def test_importing_the_app_loads_nothing_heavy() -> None:
    heavy = [
        "torch",
        "transformers",
        "sentence_transformers",
        "matplotlib",
        "sklearn",
        "scipy",
        "opentelemetry.sdk",
    ]
    code = f"import sys, service.app; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
