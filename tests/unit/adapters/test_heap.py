"""Freed memory goes back to the system."""

import asyncio
import subprocess
import sys

import pytest

from service.heap import Heap, glibc_trim, resident_bytes

pytestmark = pytest.mark.skipif(glibc_trim() is None, reason="the C library keeps what is freed")

# Blocks that glibc keeps in its heap; every hundredth stays, so that the end of the heap is not free.
HOLES = """
import asyncio
from service.heap import Heap, resident_bytes
blocks = [bytearray(50_000) for _ in range(6_000)]
full = resident_bytes()
kept = blocks[::100]
del blocks
async def main():
    heap = Heap(every_s=0.05, slack_bytes=2**20)
    if {trims}:
        await heap.start()
    for _ in range(600 if {trims} else 10):
        await asyncio.sleep(0.1)
        if full - resident_bytes() > 200e6:
            break
    await heap.stop()
    await heap.stop()
asyncio.run(main())
print(full - resident_bytes())
"""


def given_back(*, trims: bool) -> int:
    """Return how many of 300 MB a process that frees them gives back, with a heap component or without."""
    done = subprocess.run(
        [sys.executable, "-c", HOLES.format(trims=trims)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_what_is_freed_between_blocks_in_use_is_given_back() -> None:
    assert given_back(trims=True) > 200e6


def test_without_it_the_process_keeps_them() -> None:
    assert given_back(trims=False) < 100e6


def test_a_process_that_has_not_grown_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []

    async def look() -> None:
        heap = Heap(every_s=0.01, slack_bytes=2**40)
        monkeypatch.setattr(heap, "_trim", lambda: trims.append(1))
        await heap.start()
        await asyncio.sleep(0.1)
        await heap.stop()

    asyncio.run(look())
    assert not trims
    assert resident_bytes() > 2**20
