"""Reading what an LLM server sends, bounded by what it was asked for: plain or packed, whole or in lines."""

import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from service.domain.errors import LLMBadResponse

# What is taken of a refusal, of which 300 characters are told, and of a list of models.
REFUSAL_BYTES = 64 * 2**10
LIST_BYTES = 8 * 2**20
# What an answer may take: a good many times what servers send.
ANY_BYTES = 2**20
CHOICE_BYTES = 2**10
TOKEN_BYTES = 64  # 4 in the mean, sixfold when escaped, twice where reasoning is told under two names
LOGPROB_BYTES = 2**10  # of one token: its text, its bytes as numbers, its alternatives
EVENT_BYTES = 2**10  # around each token of a stream

ACCEPTED = "gzip, deflate"
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER_HEADER = zlib.MAX_WBITS | 32
TOO_LONG = "The LLM server's answer is longer than what was asked for can be."


def most_bytes(body: Mapping[str, Any]) -> int:
    """Return how many bytes, unpacked, the answer to a request's body may have."""
    token = TOKEN_BYTES + (EVENT_BYTES if body.get("stream") else 0)
    token += LOGPROB_BYTES if "logprobs" in body else 0  # 0 asks for them, too: without alternatives
    return ANY_BYTES + int(body.get("n", 1)) * (CHOICE_BYTES + int(body["max_tokens"]) * token)


async def read(response: httpx.Response, most: int) -> bytes:
    """Return a whole body. Raises LLMBadResponse when it is longer or cannot be unpacked."""
    return b"".join([chunk async for chunk in _chunks(response, most)])


async def read_beginning(response: httpx.Response, most: int) -> bytes:
    """Return a body, or the beginning of a longer one."""
    taken: list[bytes] = []
    try:
        async for chunk in _chunks(response, most):
            taken.append(chunk)
    except LLMBadResponse:
        pass
    return b"".join(taken)


async def lines(response: httpx.Response, most: int) -> AsyncIterator[str]:
    """Yield lines cut at newlines alone: httpx cuts at U+2028 and its like too, which JSON may hold as is.

    Raises as `read`. Takes linear time however long a line is.
    """
    begun: list[bytes] = []
    async for chunk in _chunks(response, most):
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join([*begun, end]).decode("utf-8", "replace")
            begun.clear()
        begun.append(rest)
    yield b"".join(begun).decode("utf-8", "replace")


async def _chunks(response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    unpacker = _unpacker(response)
    async for raw in response.aiter_raw():
        chunk = _unpacked(unpacker, raw, most + 1) if unpacker else raw
        most -= len(chunk)
        if most < 0:
            raise LLMBadResponse(TOO_LONG)
        yield chunk


def _unpacker(response: httpx.Response) -> "zlib._Decompress | None":
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in _PACKED:
        return zlib.decompressobj(wbits=_EITHER_HEADER)
    if encoding in ("", "identity"):
        return None
    raise LLMBadResponse("The LLM server's answer is packed in a way that was not asked for.")


def _unpacked(unpacker: "zlib._Decompress", raw: bytes, most: int) -> bytes:
    """Return what a piece unpacks to, at most so many bytes of it: the rest is never made."""
    try:
        return unpacker.decompress(raw, most)
    except zlib.error:
        raise LLMBadResponse("The LLM server's answer cannot be decoded.") from None
