"""Size limits of uploads, and the storage of their bytes during the upload."""

import asyncio
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import httpx2 as httpx
import pytest

from tests.support.live import on_socket, served
from tests.support.operator_world import World, problem


class Endless(httpx.AsyncByteStream):
    """A multipart body of many MiB, generated while it is sent."""

    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'

    def __init__(self, mebibytes: int) -> None:
        self.mebibytes, self.sent = mebibytes, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.head
        for _ in range(self.mebibytes * 16):
            self.sent += 1 << 16
            yield b"x" * (1 << 16)


class Recorded(tempfile.SpooledTemporaryFile[bytes]):
    """A spooled file that records whether it was written to disk. It has no name there."""

    made: ClassVar[list["Recorded"]] = []
    rolled = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made.append(self)

    def rollover(self) -> None:
        super().rollover()
        self.rolled = True


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", Recorded)
    return Recorded.made


MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}


class TestSize:
    async def test_a_declared_size_over_the_limit_is_refused_unread(self) -> None:
        body = Endless(1)
        async with World(max_bytes=1 << 20).client() as client:
            headers = {**MULTIPART, "Content-Length": str(1 << 30), "Expect": "100-continue"}
            problem(await client.post("/calibrate", content=body, headers=headers), 413, "body_too_large")
        assert body.sent == 0

    async def test_a_stream_over_the_limit_is_refused_in_flat_memory_and_leaves_no_file(
        self, spooled: list[Any]
    ) -> None:
        world = World(max_bytes=8 << 20)
        async with world.client() as client:
            tracemalloc.start()
            try:
                response = await client.post("/calibrate", content=Endless(64), headers=MULTIPART)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        problem(response, 413, "body_too_large")
        assert peak < 4 << 20
        assert [(file.rolled, file.closed) for file in spooled] == [(True, True)]
        assert await world.jobs.store.latest() == []

    async def test_a_sender_over_a_socket_sees_the_refusal(self) -> None:
        async with on_socket(World(max_bytes=1 << 20).app) as client:
            for headers in (MULTIPART, {**MULTIPART, "Content-Length": str(len(Endless.head) + (32 << 20))}):
                response = await client.post("/calibrate", content=Endless(32), headers=headers)
                problem(response, 413, "body_too_large")

    async def test_disconnected_sender_leaves_no_file(self, spooled: list[Any]) -> None:
        world = World()
        async with served(world.app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = "POST /calibrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000000\r\n"
            kind = f"Content-Type: {MULTIPART['Content-Type']}\r\n\r\n"
            writer.write((head + kind).encode() + Endless.head + b"x" * (4 << 20))
            await writer.drain()
            writer.close()
            async with asyncio.timeout(60):
                while not (spooled and spooled[0].closed):
                    await asyncio.sleep(0.005)
        assert await world.jobs.store.latest() == []
        assert [(file.rolled, file.closed) for file in spooled] == [(True, True)]
