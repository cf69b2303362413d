"""The port to the LLM server for calls that go to it as their callers wrote them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the server's own API: `path` below its base, `body` a JSON object's bytes (None: GET)."""

    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


class Reply(Protocol):
    """What the server answers, its body not read yet. To be closed, whatever happened."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return those headers that are about the answer, not about the connection, by lower-case name."""

    @property
    def is_stream(self) -> bool:
        """Tell whether the body is a stream of server-sent events."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, unpacked. Raises LLMUnavailable when it breaks off."""

    async def close(self) -> None:
        """Let go of the connection; a body that has not been read to its end is cut off. Idempotent."""


class Upstream(Protocol):
    """Takes calls as they are: none is put in line, tried again or bounded in time. Cancelling ends one."""

    async def start(self) -> None:
        """Acquire what is needed."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    async def open(self, call: Call) -> Reply:
        """Return the answer once its head is there, whatever its status.

        Raises LLMUnavailable where the server cannot be reached, and what else keeps it from answering.
        """
