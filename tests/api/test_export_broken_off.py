"""An export that meets a delete, over a real socket: broken off, and one line about it in the log."""

import asyncio
import logging
import socket
from pathlib import Path

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import served
from tests.support.reports import FEW

ROWS, ANSWERS = 300, ["a", "b", "a", "c"]


async def calibrated(http: httpx.AsyncClient) -> str:
    """Return a calibration whose rows fill more than the buffers of a socket."""
    long = "x" * 20_000
    rows = [{"prompt": f"{long} {i}", "reference": "a", "samples": ANSWERS} for i in range(ROWS)]
    job = (await http.post("/calibrate", json={"examples": rows})).raise_for_status().json()
    await http.get(f"/jobs/{job['id']}/events")  # to its end
    return str((await http.get(f"/jobs/{job['id']}")).json()["calibration_id"])


def narrow(port: int) -> socket.socket:
    """Return a connection that takes little before it is read from."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.setblocking(False)
    return made


async def test_an_export_that_meets_a_delete(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=FakeEmbedder(16), resamples=FEW)
    async with (
        served(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http,
    ):
        made = await calibrated(http)
        reader, writer = await asyncio.open_connection(sock=narrow(port), limit=1024)
        writer.write(f"GET /calibrations/{made}/data HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        sent = await reader.read(1)  # the head goes out before any row is read
        assert sent
        (await http.delete(f"/calibrations/{made}/data")).raise_for_status()
        while some := await reader.read(1 << 16):
            sent += some
        writer.close()
        await writer.wait_closed()
    assert not sent.endswith(b"\r\n0\r\n\r\n"), "nobody may take it for whole"
    assert "Traceback" not in capfd.readouterr().err
    ours = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.exc_info for record in ours if record.name.startswith("service.calibration")] == [None]
