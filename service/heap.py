"""Giving memory that was freed back to the system, where the C library is glibc.

A model's work on texts of ever other lengths leaves holes in glibc's heap that are free and still count as
resident: a service grew by hundreds of MB in minutes and used none of them. `malloc_trim` gives them back.
"""

import asyncio
import contextlib
import ctypes
import logging
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

EVERY_S = 5.0
SLACK_BYTES = 48 * 2**20  # growth that is worth the tens of milliseconds that a trim takes
PAGE_BYTES = mmap.PAGESIZE
_STATM = Path("/proc/self/statm")


def glibc_trim() -> Callable[[], None] | None:
    """Return a call that gives free memory back, or None where the system knows no such thing."""
    if sys.platform != "linux" or not _STATM.exists():
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl, say
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0) and None


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM (Linux)."""
    return int(_STATM.read_text().split()[1]) * PAGE_BYTES


class Heap:
    """A component with start and stop: looks every few seconds, and trims when the process has grown.

    `every_s`: seconds between looks. `slack_bytes`: growth since the last trim that is left alone.
    """

    def __init__(self, *, every_s: float = EVERY_S, slack_bytes: int = SLACK_BYTES) -> None:
        self._every_s = every_s
        self._slack = slack_bytes
        self._trim = glibc_trim()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look; does nothing where memory cannot be given back."""
        if self._trim is not None:
            self._task = asyncio.create_task(self._look(self._trim), name="heap")

    async def stop(self) -> None:
        """Look no more; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _look(self, trim: Callable[[], None]) -> None:
        floor = 0
        while True:
            await asyncio.sleep(self._every_s)
            grown = resident_bytes()
            if grown > floor + self._slack:
                # In a thread: the call holds no GIL, and what is free may be much.
                await asyncio.to_thread(trim)
                floor = resident_bytes()
                logger.debug("gave back %d MiB", (grown - floor) >> 20)
            floor = min(floor, grown)
