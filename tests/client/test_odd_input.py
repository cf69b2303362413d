"""Odd files, names and answers: what cannot be sent or read is told by an error of this client."""

import gzip
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import eigencal
from tests.client.test_jobs import ACCEPTED, LINE, ROW
from tests.client.test_retries import GOOD, Script
from tests.support.both_clients import Driver


class Growing(io.BytesIO):
    """A file that somebody writes to as it is read."""

    grown = 0

    def read(self, size: int | None = -1) -> bytes:
        if size and self.grown < 50:
            self.grown += 1
            at = self.tell()
            self.seek(0, os.SEEK_END)
            self.write(LINE)
            self.seek(at)
        return super().read(size)


class Shrinking(io.BytesIO):
    """A file that somebody empties as it is read."""

    def read(self, size: int | None = -1) -> bytes:
        if size:
            self.truncate(0)
        return super().read(size)


def packed(folder: Path) -> Any:
    path = folder / "dev.jsonl.gz"
    path.write_bytes(gzip.compress(LINE * 1000))
    return gzip.open(path)


def pipe(folder: Path) -> Any:
    """A path that can be read once."""
    path = folder / "dev.jsonl"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(LINE * 1000,), daemon=True).start()
    return path


FILES: dict[str, Callable[[Path], Any]] = {
    "packed": packed,
    "growing": lambda folder: Growing(LINE * 1000),
    "a named pipe": pipe,
}


@pytest.mark.parametrize("name", FILES)
def test_exactly_what_was_there_is_sent(drive: Driver, tmp_path: Path, name: str) -> None:
    script = Script(httpx.ReadError("broke off"), ACCEPTED)
    with drive("http://host", answer=script, longest_wait_s=0.01) as client:
        client.calibrate(FILES[name](tmp_path))
    for request in script.seen:
        assert int(request.headers["content-length"]) == len(request.content)
    assert script.seen[0].content.count(LINE) == 1000


def closed() -> io.BytesIO:
    file = io.BytesIO(LINE)
    file.close()
    return file


UNREADABLE: dict[str, Callable[[], Any]] = {
    "a file that shrinks": lambda: Shrinking(LINE),
    "a closed file": closed,
    "a name with a zero": lambda: "dev\0.jsonl",
    "no text": lambda: io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"),
    "half a character": lambda: [ROW, {"prompt": "\ud800"}],
    "a set": lambda: [{"prompt": {1}}],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_told(drive: Driver, name: str) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetup):
        client.calibrate(UNREADABLE[name]())
    assert name == "a file that shrinks" or script.seen == []


def test_a_file_may_have_any_name(drive: Driver, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/dev\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(LINE)
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client:
        client.calibrate(os.fsdecode(path))
    assert b'filename="dev?.jsonl"' in script.seen[0].content


OPTIONS = [{"idempotency_key": "ü"}, {"idempotency_key": "a\nX: y"}, {"name": "\udcff"}]


@pytest.mark.parametrize("options", OPTIONS, ids=ascii)
def test_what_no_header_or_form_can_hold_is_refused(drive: Driver, options: dict[str, Any]) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetup):
        client.calibrate([ROW], **options)
    assert script.seen == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "\ud800", None, 7, "x" * 70_000], ids=lambda name: ascii(name)[:9]
)
def test_an_id_that_is_none_goes_nowhere(drive: Driver, name: Any) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetup):
        client.job(name)
    assert script.seen == []


def test_half_a_character_in_a_prompt_is_the_services_to_judge(drive: Driver) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client:
        client.score("\ud800")
    assert script.seen[0].content == b'{"prompt":"\\ud800"}'


BODIES: list[bytes] = [
    b'{"errors": 5, "code": "x"}', b'{"errors": "abc", "title": null}', b'{"errors": [1, 2]}',
    b"[" * 200_000, b'{"code": ["x"], "detail": {}, "request_id": {"z": 1}, "retryable": "false"}',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:20].decode())
def test_an_error_of_any_shape_is_told(drive: Driver, body: bytes) -> None:
    # A proxy's, before the service: whatever else has no code of ours is not the service at all.
    with drive("http://host", answer=Script(httpx.Response(502, content=body)), retries=0) as client:
        with pytest.raises(eigencal.BadGateway) as caught:
            client.score("What?")
    error = caught.value
    assert (error.errors, error.title, error.request_id, error.retryable) == ((), "", None, False)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:20].decode())
def test_a_refusal_of_any_shape_is_told(drive: Driver, body: bytes) -> None:
    # Only a code tells that it is the service's; without one, something else answers there.
    told = eigencal.BadRequest if b'"code": "x"' in body else eigencal.UnexpectedAnswer
    with drive("http://host", answer=Script(httpx.Response(400, content=body)), retries=0) as client:
        with pytest.raises(told):
            client.score("What?")


@pytest.mark.parametrize("when", ["Mon, 01 Jan 0001 00:00:00 +2359", "Mon, 01 Jan 2024 00:00:00 +9999999999"])
def test_a_date_that_is_none_is_no_time_to_wait(drive: Driver, when: str) -> None:
    answer = httpx.Response(503, content=b"{}", headers={"retry-after": when})
    with drive("http://host", answer=Script(answer), retries=0) as client:
        with pytest.raises(eigencal.Unavailable) as caught:
            client.score("What?")
    assert caught.value.retry_after_s in (None, 0.0)


def test_too_deep_an_answer_is_unexpected(drive: Driver) -> None:
    with drive("http://host", answer=Script(httpx.Response(200, content=b"[" * 200_000))) as client:
        with pytest.raises(eigencal.UnexpectedAnswer):
            client.score("What?")


def test_a_password_in_the_url_is_not_shown(drive: Driver) -> None:
    with drive("http://me:s3cret@host:8/base/", answer=Script(GOOD)) as client:
        assert repr(client).endswith("Client('http://host:8/base')")
        assert "s3cret" not in repr(client)
