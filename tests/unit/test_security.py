"""Each line of SECURITY.md's table names existing tests."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
(TABLE,) = re.findall(r"^## Who could do what.*?(?=^## )", (ROOT / "SECURITY.md").read_text(), re.M | re.S)
LINES = [line for line in TABLE.splitlines() if line.startswith("| ")][2:]
GUARD = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions_of(file: str) -> set[str]:
    """Return the names of a file's functions, including methods."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_line_names_existing_tests() -> None:
    assert LINES
    for line in LINES:
        guards = GUARD.findall(line)
        assert guards and line.count("::") == len(guards), line
        for file, test in guards:
            assert test in functions_of(file), f"{file}::{test}"
