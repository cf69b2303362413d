"""Lines of a body as it comes.

httpx's own also end a line at U+2028 and the like, which JSON lets stand inside an answer.
"""

import json
import time
from collections.abc import Callable, Iterator

from eigencal._errors import ConnectionLost, TimedOut


class Lines:
    """Cuts bytes into lines at newlines alone.

    Args:
        silence_s: Seconds that a line may take, however its bytes drip.
        clock: What they are counted by.
    """

    def __init__(self, silence_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_s, self._clock = silence_s, clock
        self._rest: list[bytes] = []  # joined once: a long line comes in many pieces
        self._line_at = clock()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes, without their ends; empty ones, too. Raises TimedOut."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            self._check_time()
            return
        *whole, rest = others
        lines = [b"".join(self._rest), *whole]
        self._rest = [rest]
        for line in lines:
            yield line.removesuffix(b"\r")
        self._line_at = self._clock()

    def end(self) -> Iterator[bytes]:
        """Yield what is left when the body has ended. Raises ConnectionLost for a line that was cut."""
        rest, self._rest = b"".join(self._rest).strip(), []
        if rest and not _is_whole(rest):
            raise ConnectionLost("The answer ended in the middle of a line.")
        if rest:
            yield rest

    def _check_time(self) -> None:
        if self._clock() - self._line_at > self._silence_s:
            raise TimedOut(f"No line came within {self._silence_s:g} s.")


def _is_whole(rest: bytes) -> bool:
    said = rest.removeprefix(b"data:").strip()
    try:
        json.loads(said)
    except (ValueError, RecursionError):
        return said == b"[DONE]"
    return True
