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
def test_what_was_read_once_is_sent_each_time(drive: Driver, tmp_path: Path, name: str) -> None:
    script = Script(httpx.ReadError("broke off"), ACCEPTED)
    with drive("http://host", answer=script, longest_wait_s=0.01) as client:
        client.calibrate(FILES[name](tmp_path))
    for request in script.seen:
        assert int(request.headers["content-length"]) == len(request.content)
    first, second = (request.content.count(LINE) for request in script.seen)
    assert first == second >= 1000


def closed() -> io.BytesIO:
    file = io.BytesIO(LINE)
    file.close()
    return file


UNREADABLE: dict[str, Callable[[], Any]] = {
    "a closed file": closed,
    "a name with a zero": lambda: "dev\0.jsonl",
    "no text": lambda: io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"),
    "half a character": lambda: [ROW, {"prompt": "\ud800"}],
    "a set": lambda: [{"prompt": {1}}],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_told(drive: Driver, name: str) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetupError):
        client.calibrate(UNREADABLE[name]())
    assert script.seen == []


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
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetupError):
        client.calibrate([ROW], **options)
    assert script.seen == []


@pytest.mark.parametrize("name", ["", "..", "\ud800", None, "x" * 70_000], ids=lambda name: ascii(name)[:9])
def test_an_id_that_is_none_goes_nowhere(drive: Driver, name: Any) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetupError):
        client.job(name)
    assert script.seen == []


def test_half_a_character_in_a_prompt_is_the_services_to_judge(drive: Driver) -> None:
    script = Script(GOOD)
    with drive("http://host", answer=script) as client:
        client.score("\ud800")
    assert script.seen[0].content == b'{"prompt":"\\ud800"}'
