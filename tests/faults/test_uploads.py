"""Slow uploads over real sockets: they do not block other work, and their number is limited."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.admin import uploads
from service.jobs.store import SqlJobs
from tests.support.live import fake_app, on_socket

FILE = b"".join(b'{"prompt":"Q%d?","reference":"yes"}\n' % i for i in range(40))


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, uploads are read again and again."""
    event, read = threading.Event(), uploads.read_file

    def slowly(*args: Any, **options: Any) -> Any:
        assert event.wait(60)
        return read(*args, **options)

    monkeypatch.setattr(uploads, "read_file", slowly)
    yield event
    event.set()


async def test_uploads_have_their_own_threads_and_a_limit(
    go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_THREADS", 1)
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 3)
    shared = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(shared)
    async with on_socket(fake_app()) as http:
        sent = [asyncio.ensure_future(http.post("/calibrate", files={"file": FILE})) for _ in range(5)]
        async with asyncio.timeout(60):
            refused, _ = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
            while len(refused) < 2:
                refused, _ = await asyncio.wait(sent, timeout=0.05)
            assert await asyncio.to_thread(lambda: "at once") == "at once"
            scored = await http.post("/score", json={"samples": ["a", "b"]})
        assert scored.status_code == 200
        for answer in (item.result() for item in refused):
            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"]
        go_on.set()
        assert sorted([(await item_).status_code for item_ in sent]) == [202, 202, 202, 503, 503]
        assert (await http.post("/calibrate", files={"file": FILE})).status_code == 202


async def test_upload_keeps_its_slot_until_its_job_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 1)
    storing, go_on, submit = asyncio.Event(), asyncio.Event(), SqlJobs.submit

    async def slowly(*args: Any, **options: Any) -> Any:
        storing.set()
        await go_on.wait()
        return await submit(*args, **options)

    monkeypatch.setattr(SqlJobs, "submit", slowly)
    async with on_socket(fake_app()) as http:
        first = asyncio.ensure_future(http.post("/calibrate", files={"file": FILE}))
        async with asyncio.timeout(60):
            await storing.wait()
        assert (await http.post("/calibrate", files={"file": FILE})).status_code == 503
        go_on.set()
        assert (await first).status_code == 202
