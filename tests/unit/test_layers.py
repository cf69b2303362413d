"""The layers: spectral <- domain <- {adapters, api, report} <- app. Nothing points the other way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "spectral": {"spectral"},
    "domain": {"domain", "spectral"},
    "adapters": {"adapters", "domain", "spectral"},
    "api": {"api", "domain", "spectral", ""},  # "": the package itself, for its version
    "report": {"report", "domain", "spectral"},
}
FILES = [path for layer in ALLOWED for path in sorted((ROOT / "service" / layer).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    """Return every module of ours that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return {name for name in names if name.split(".")[0] in ("service", "eigencal")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    layer = path.relative_to(ROOT / "service").parts[0]
    targets = {(*name.split("."), "")[1] for name in imported(path)}
    assert targets <= ALLOWED[layer], f"{layer} may not import {targets - ALLOWED[layer]}"


def test_the_client_never_imports_the_service() -> None:
    for path in (ROOT / "clients").rglob("*.py"):
        assert not {name for name in imported(path) if name.startswith("service")}, path


def test_settings_are_read_in_one_place() -> None:
    readers = {"service/app.py", "service/cli.py", "service/contract.py", "service/settings_table.py"}
    for path in (ROOT / "service").rglob("*.py"):
        if "service.settings" in imported(path):
            assert str(path.relative_to(ROOT)) in readers, path


def test_importing_the_app_loads_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "sentence_transformers", "matplotlib", "sklearn", "scipy"]
    code = f"import sys, service.app; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
