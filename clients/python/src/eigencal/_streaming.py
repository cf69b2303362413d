"""Lines of a body as it comes.

httpx's own also end a line at U+2028 and the like, which JSON lets stand inside an answer.
"""

import time
from collections.abc import Iterator

from eigencal._exceptions import APIConnectionError, APITimeoutError


class LineDecoder:
    """Cuts bytes into lines at newlines alone.

    Args:
        silence_s: Seconds that a line may take, however its bytes drip.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._rest: list[bytes] = []  # joined once: a long line comes in many pieces
        self._line_at = time.monotonic()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes, without their ends; empty ones, too."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            if time.monotonic() - self._line_at > self._silence_s:
                raise APITimeoutError(f"No line came within {self._silence_s:g} s.")
            return
        *complete, rest = others
        lines = [b"".join(self._rest), *complete]
        self._rest = [rest]
        for line in lines:
            yield line.removesuffix(b"\r")
        self._line_at = time.monotonic()  # the caller's own time is not the service's

    def end(self) -> Iterator[bytes]:
        """Yield what is left when the body has ended. Raises APIConnectionError for a line that was cut."""
        rest = b"".join(self._rest).strip()
        if rest and rest.removeprefix(b"data:").strip() != b"[DONE]":
            raise APIConnectionError("The answer ended in the middle of a line.")
        if rest:
            yield rest
