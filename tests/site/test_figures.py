"""The figures are drawn from the numbers in the same folder."""

import json
from typing import Any

import pytest

from tools.site.figures import FOLDER, NUMBERS, figures, recorded

pytestmark = pytest.mark.site
FOUND: dict[str, Any] = json.loads(NUMBERS.read_text("utf-8"))
ROWS = recorded()


def test_the_figures_are_those_of_the_numbers() -> None:
    drawn = figures(FOUND)
    assert {path.stem for path in FOLDER.glob("*.svg")} == drawn.keys()
    for name, svg in drawn.items():
        assert (FOLDER / f"{name}.svg").read_text("utf-8") == svg, f"{name}: python -m tools.site.figures"


def test_the_numbers_are_of_the_bundled_questions() -> None:
    assert FOUND["from"]["rows"] == len(ROWS)
    shown = {one["id"]: one for one in FOUND["spectra"]}
    for row in ROWS:
        if row["id"] in shown:
            assert shown[row["id"]]["prompt"] == row["prompt"]
            assert len(shown[row["id"]]["eigenvalues"]) <= len(set(row["samples"]))
