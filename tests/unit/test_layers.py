"""Imports point one way, for the whole tree: a room imports only rooms below it."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"
CLIENT = ROOT / "clients" / "python" / "src" / "eigencal"
# From the bottom to the top.
ROOMS = (
    *("errors", "ids", "lru", "spectral"),
    *("sharing", "llm", "store", "embedding", "claims", "http"),
    *("calibration", "scoring", "report", "jobs", "proxy", "admin", "console"),
    *("settings", "server", "app", "cli", "__main__"),
)
WIRING = {"settings", "app", "cli"}  # no room imports these


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@functools.cache
def rooms() -> dict[str, set[str]]:
    """Return the rooms that each room of the service imports."""
    found: dict[str, set[str]] = {}
    for path in SERVICE.rglob("*.py"):
        room = path.relative_to(SERVICE).with_suffix("").parts[0]
        ours = {name for name in imported(path) if name.split(".")[0] == "service"}
        found.setdefault(room, set()).update((*name.split("."), "")[1] for name in ours)
    return {room: names - {room, ""} for room, names in found.items()}


def test_the_mathematics_import_nothing_of_the_service() -> None:
    assert rooms()["spectral"] == set()


def test_a_room_imports_only_rooms_below_it() -> None:
    upward = {
        (room, name)
        for room, names in rooms().items()
        for name in names - {"__version__"}
        if room != "__init__" and ROOMS.index(name) >= ROOMS.index(room)
    }
    assert upward == set()


def test_no_room_imports_the_wiring() -> None:
    inner = {room: names for room, names in rooms().items() if room not in WIRING | {"__main__"}}
    assert {room: names & WIRING for room, names in inner.items() if names & WIRING} == {}


def test_nothing_of_ours_is_imported_from_outside_what_is_shipped() -> None:
    for path in SERVICE.rglob("*.py"):
        assert not {"eigencal", "demo", "lab", "tools", "tests", "benchmarks"} & {
            name.split(".")[0] for name in imported(path)
        }
    for path in CLIENT.rglob("*.py"):
        assert not {"service", "demo", "tools", "tests", "benchmarks"} & {
            name.split(".")[0] for name in imported(path)
        }


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
