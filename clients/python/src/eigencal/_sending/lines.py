"""Lines of a body as it comes.

httpx's own also end a line at U+2028 and the like, which JSON lets stand inside an answer.
"""

from collections.abc import Iterator


class Lines:
    """Cuts bytes into lines at newlines alone."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes, without their ends; empty ones, too."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")

    def end(self) -> Iterator[bytes]:
        """Yield what is left when the body has ended."""
        if self._rest:
            yield self._rest
        self._rest = b""
