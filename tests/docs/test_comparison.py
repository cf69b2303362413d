"""The comparison: README's cells are those of the page, and each cell says where it stands."""

import re

import pytest

from benchmarks.processes import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
OURS = "## Where ours stand"


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text as rows of cells, without their rules."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in one.splitlines()] for one in found
    ]
    return [[row for row in one if set(row[0]) - set("-: ") or not row[0]] for one in rows]


FULL, THEIRS, OUR = tables(PAGE)
[SHORT] = [one for one in tables(README) if "Eigencal" in one[0]]


def test_readme_has_rows_of_the_page_word_for_word() -> None:
    assert SHORT[0] == FULL[0]
    assert 5 < len(SHORT) < len(FULL)
    for row in SHORT:
        assert row in FULL


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


def test_what_we_lack_is_told_first() -> None:
    lacking = [row[0] for row in FULL[1:] if row[1] == "no"]
    assert {"Claims in long answers", "A model as judge, reasons in words"} <= set(lacking)
    assert set(lacking) <= {row[0] for row in SHORT}
