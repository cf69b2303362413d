"""The layers: spectral <- domain <- {adapters, api, report, evaluate} <- app <- cli; never the other way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"
# What each package, and each module beside them, may import of the service; "": the version alone.
ALLOWED = {
    "spectral": {"spectral"},
    "domain": {"domain", "spectral"},
    "adapters": {"adapters", "domain", "spectral"},
    "api": {"api", "domain", "spectral", ""},
    "report": {"report", "domain", "spectral"},
    "shown_progress": set[str](),
    "evaluate": {"evaluate", "shown_progress", "adapters", "report", "domain", "spectral"},
    "settings": {"settings"},
    "app": {"app", "settings", "adapters", "api", "report", "domain", "spectral", ""},
    "server": {"server", "api"},
    "demo_data": {"demo_data", "domain"},
    "demo": {"demo", "demo_data", "shown_progress"},
    "cli": {
        "cli",
        "app",
        "settings",
        "server",
        "evaluate",
        "adapters",
        "api",
        "demo",
        "demo_data",
        "domain",
        "",
    },
    "__main__": {"cli"},
    "__init__": set[str](),
}
FILES = sorted(SERVICE.rglob("*.py"))
CLIENT = ROOT / "clients" / "python" / "src" / "eigencal"
CLIENT_FILES = sorted(CLIENT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return every module of ours that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return {
        name
        for name in names
        if name.split(".")[0] in ("service", "eigencal", "tools", "tests", "benchmarks")
    }


def layer_of(path: Path) -> str:
    """Return the package of a file, or its own name where it stands beside the packages."""
    first, *more = path.relative_to(SERVICE).parts
    return first if more else path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    names = imported(path)
    assert {name.split(".")[0] for name in names} <= {"service"}, "what is shipped needs nothing beside it"
    targets = {(*name.split("."), "")[1] for name in names}
    assert targets <= ALLOWED[layer_of(path)], f"may not import {targets - ALLOWED[layer_of(path)]}"


@pytest.mark.parametrize("path", CLIENT_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_client_never_imports_the_service(path: Path) -> None:
    assert {name.split(".")[0] for name in imported(path)} <= {"eigencal"}


def test_every_package_is_known() -> None:
    assert {layer_of(path) for path in FILES} == set(ALLOWED)


def test_settings_are_read_in_one_place() -> None:
    readers = {path for path in FILES if "service.settings" in imported(path)}
    assert {layer_of(path) for path in readers} == {"app", "cli"}


def test_importing_the_app_loads_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "sentence_transformers", "matplotlib", "sklearn", "scipy"]
    code = f"import sys, service.app; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
