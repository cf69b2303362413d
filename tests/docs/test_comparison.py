"""The comparison: what was not found, and what a reader may doubt, says where it was looked for."""

import re

from benchmarks.processes import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text as rows of cells, without their rules."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in one.splitlines()] for one in found
    ]
    return [[row for row in one if set(row[0]) - set("-: ") or not row[0]] for one in rows]


FULL, THEIRS = tables(PAGE)


def test_each_row_of_sources_is_one_of_the_table() -> None:
    assert all(len(row) == len(FULL[0]) and all(row) for row in FULL[1:])
    assert all(len(row) == len(THEIRS[0]) and all(row) for row in THEIRS[1:])
    assert {row[0] for row in THEIRS[1:]} <= {row[0] for row in FULL[1:]}


def test_what_was_not_found_has_its_source() -> None:
    sought = {row[0] for row in FULL[1:] if "none found" in row}
    assert sought <= {row[0] for row in THEIRS[1:]}


def test_versions_and_a_date_are_told() -> None:
    assert re.search(r"on \d+ \w+ 20\d\d", PAGE)
    for package in ("cleanlab-tlm", "uqlm", "lm-polygraph"):
        [version] = set(re.findall(rf"{package}==([\d.]+)", PAGE))
        assert f"`{package}` {version}" in PAGE
