"""Calibrations of recorded rows are what they were; see `tests.golden.fits`."""

import gzip
import json
from pathlib import Path

import pytest

from tests.golden.fits import CASES, KEPT, fitted
from tests.golden.test_golden_scores import approximately

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("name", CASES)
def test_fits_are_what_they_were(shared_data: Path, name: str) -> None:
    assert shared_data.exists()
    before = json.loads(gzip.decompress(KEPT.read_bytes()))[name]
    found = json.loads(json.dumps(fitted(name)[1]))
    assert found == approximately(before)
