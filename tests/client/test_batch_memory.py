"""Four times the items take no more memory: measured on the client alone, the service is another process."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.both_clients import Driver

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def apart() -> Iterator[str]:
    """A scripted service in a process of its own."""
    command = [sys.executable, "-m", "tests.support.scripted_batches"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def test_memory_does_not_grow_with_the_number_of_items(drive: Driver, apart: str) -> None:
    def peak(count: int) -> int:
        items = (f"question {i}" for i in range(count))
        tracemalloc.reset_peak()
        assert sum(item.ok for item in client.score_batch(items)) == count
        return tracemalloc.get_traced_memory()[1]

    with drive(apart) as client:
        tracemalloc.start()
        try:
            peak(600)  # what is made once
            thousand, four_thousand = peak(1_000), peak(4_000)
        finally:
            tracemalloc.stop()
    # What the garbage collector has not got to yet varies; results that were kept would be 20 times as much.
    assert four_thousand < 2 * thousand, (thousand, four_thousand)
