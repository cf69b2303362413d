"""An answer of the LLM server that is passed on as it arrives."""

import re
from collections.abc import AsyncIterator, Mapping

import httpx2

from service.errors import LLMUnavailable

# Headers of the server that callers need: the content and the retry time. The others describe the connection,
# the operator's account or the server.
_PASSED_ON = frozenset(
    {
        "allow",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
    }
)
MAX_WHOLE_BYTES = 8 << 20  # of an answer that is read whole
_ENDED = re.compile(
    rb'(?:^|[\r\n])data:\s*\[DONE\]|"finish_reason"\s*:\s*"(?!"|null")|"type"\s*:\s*"response\.(?:completed|incomplete|failed)"'
)
MAX_END_BYTES = 64  # of a match
BROKEN_OFF = "The LLM server broke off its answer."


class Reply:
    """The server's answer, with its body not read yet.

    `headers`: only headers about the content, by lower-case name. `is_stream`: the body is a stream of
    server-sent events. `attempt`: the position of the content that the server has answered. `secret`: a key
    that is redacted from the body; b"" for none.
    """

    def __init__(
        self,
        response: httpx2.Response,
        body: AsyncIterator[bytes],
        *,
        is_stream: bool,
        attempt: int,
        secret: bytes,
    ) -> None:
        self.status = response.status_code
        self.is_stream = is_stream
        self.attempt = attempt
        # Latin-1 keeps the bytes of header values unchanged.
        raw = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers.raw}
        self.headers: Mapping[str, str] = {k: v for k, v in raw.items() if k in _PASSED_ON}
        # A stream that ends with its connection is complete only if its answer has ended.
        is_delimited = "content-length" in raw or "transfer-encoding" in raw
        self._is_ended_by_connection = is_stream and not is_delimited and 200 <= self.status < 300
        self._body = body
        self._secret = secret

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises LLMUnavailable when the server breaks it off."""
        has_ended, tail = not self._is_ended_by_connection, b""
        try:
            async for piece in self._body:
                if not has_ended:
                    has_ended = _ENDED.search(tail + piece) is not None
                    tail = (tail + piece)[-MAX_END_BYTES:]
                yield piece.replace(self._secret, b"[redacted]") if self._secret else piece
        except httpx2.TransportError:
            raise LLMUnavailable(BROKEN_OFF) from None
        if not has_ended:
            raise LLMUnavailable(BROKEN_OFF)


async def read_ahead(pieces: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """Return the body and True, or its beginning and False if it is longer than `MAX_WHOLE_BYTES`."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_WHOLE_BYTES:
            return bytes(body), False
    return bytes(body), True
