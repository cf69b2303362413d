"""An answer on its way from the LLM server to its caller, piece by piece."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.http.problems import error_body, openai_error
from service.api.openai.sse import event_of
from service.api.routes.score import while_connected
from service.domain.chat.upstream import Reply
from service.domain.errors import EigencalError, LLMBadResponse

# Of an answer that is not streamed: far more than any holds, and less than this process has.
MOST_BYTES = 64 << 20
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")


class Relay(Response):
    """Sends pieces as they come, until the last of them or until the caller hangs up; then all is let go."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncGenerator[bytes, None],
        ending: AsyncExitStack,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._ending:
            await while_connected(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._pieces):
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def as_it_is(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield a stream as it comes; where the server breaks it off, an event says so."""
    last = b""
    try:
        async for piece in reply.pieces():
            last = (last + piece)[-4:]
            yield piece
    except EigencalError as error:
        # An event that was cut ends first, or the error would be part of it.
        yield (b"" if last.endswith(_BLANK_LINES) else b"\n\n") + broken_off(error)


def broken_off(error: EigencalError) -> bytes:
    """Return the event by which clients of OpenAI's API learn that a stream has failed."""
    return event_of(openai_error(error_body(error, None)))


async def whole(reply: Reply) -> bytes:
    """Return the body of an answer that is not streamed; raises LLMUnavailable, LLMBadResponse."""
    pieces, size = [], 0
    async for piece in reply.pieces():
        size += len(piece)
        if size > MOST_BYTES:
            raise LLMBadResponse("The LLM server's answer is longer than the service takes.")
        pieces.append(piece)
    return b"".join(pieces)
