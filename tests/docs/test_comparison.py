"""The comparison: each cell says where it stands."""

import re

import pytest

from benchmarks.processes import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text as rows of cells, without their rules."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in one.splitlines()] for one in found
    ]
    return [[row for row in one if set(row[0]) - set("-: ") or not row[0]] for one in rows]


FULL, THEIRS, OUR = tables(PAGE)


def test_every_row_says_where_ours_and_theirs_stand() -> None:
    rows = [row[0] for row in FULL[1:]]
    assert [row[0] for row in THEIRS[1:]] == rows
    assert [row[0] for row in OUR[1:]] == rows
    assert all(len(row) == len(FULL[0]) and all(row) for row in FULL[1:])
    assert all(all(row) for row in THEIRS[1:] + OUR[1:])


@pytest.mark.parametrize("row", OUR[1:], ids=lambda row: row[0])
def test_what_stands_for_ours_is_there(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`", row[1])
    paths = [ROOT / name for name in named if "/" in name or name.isupper()]
    tests = [name for name in named if name.startswith("test_")]
    assert all(path.exists() for path in paths), row
    for test in tests:
        assert any(path.is_file() and f"def {test}(" in path.read_text(encoding="utf-8") for path in paths), (
            test
        )
    assert named or "](" in row[1] or row[1].startswith("nothing")


def test_versions_and_a_date_are_told() -> None:
    assert re.search(r"on \d+ \w+ 20\d\d", PAGE)
    for package in ("cleanlab-tlm", "uqlm", "lm-polygraph"):
        [version] = set(re.findall(rf"{package}==([\d.]+)", PAGE))
        assert f"`{package}` {version}" in PAGE
