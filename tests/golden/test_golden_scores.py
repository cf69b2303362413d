"""Scores of recorded answers are what they were; see `tests.golden.scores`."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.scores import KEPT, WORLDS, World, played

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
async def test_scores_are_what_they_were(shared_data: Path, world: World) -> None:
    assert shared_data.exists()
    before = json.loads(gzip.decompress(KEPT.read_bytes()))[world.name]
    assert await played(world) == [approximately(score) for score in before]


def approximately(value: Any) -> Any:
    """Return the JSON with numbers that equal others within 1e-9."""
    if isinstance(value, dict):
        return {name: approximately(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [approximately(inner) for inner in value]
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
