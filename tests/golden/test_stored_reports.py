"""The stored reports for page tests match the pipeline: `python -m tests.support.reports`."""

import json
from typing import Any

import pytest

from tests.support.reports import FOLDER, MADE


def check(made: Any, stored: Any, where: str) -> None:
    """Fail if the two values differ by more than rounding of floats."""
    if isinstance(stored, dict):
        assert made.keys() == stored.keys(), where
        for name, actual in stored.items():
            check(made[name], actual, f"{where}.{name}")
    elif isinstance(stored, list):
        assert len(made) == len(stored), where
        for number, actual in enumerate(stored):
            check(made[number], actual, f"{where}[{number}]")
    elif isinstance(stored, float):
        assert made == pytest.approx(stored, rel=1e-5, abs=1e-6), where
    elif not where.endswith(("recommendation", "verdict", ".text")):  # words with digits in them
        assert made == stored, where


@pytest.mark.parametrize("name", MADE)
def test_stored_reports_match_the_pipeline(name: str) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    check(json.loads(json.dumps(MADE[name]())), stored, name)
