"""Number of test processes."""

import pytest

from tests.support.workers import workers

GB = 2**30


@pytest.mark.parametrize(
    ("cores", "memory", "number"),
    [(2, 24 * GB, 4), (8, 8 * GB, 2), (16, 64 * GB, 8), (1, 64 * GB, 2), (8, 2 * GB, 1)],
)
def test_workers_depend_on_cores_and_memory(cores: int, memory: int, number: int) -> None:
    assert workers(cores, memory) == number
