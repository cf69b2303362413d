"""Answers that go into a file: whole, or what was there stays."""

import errno
import os
from pathlib import Path

import pytest

from eigencal import InvalidSetup
from eigencal._sending.files import written


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


def test_a_new_file_has_the_rights_of_any(page: Path) -> None:
    other = page.with_name("other")
    other.touch()
    assert written("new", page) == page
    assert (page.read_text(), page.stat().st_mode) == ("new", other.stat().st_mode)


def test_a_full_disk_leaves_the_old_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as told:
        written("new", page)
    assert told.value.filename == str(page)
    assert (page.read_text(), list(page.parent.iterdir())) == ("old", [page])


def test_a_link_and_the_rights_of_a_file_stay(page: Path) -> None:
    link = page.with_name("link")
    page.write_text("old")
    page.chmod(0o640)
    link.symlink_to(page)
    assert written("new", link) == link
    assert link.is_symlink()
    assert (page.read_text(), page.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_pipe_is_written_and_not_replaced(page: Path) -> None:
    os.mkfifo(page)
    reader = os.open(page, os.O_RDONLY | os.O_NONBLOCK)
    written("new", page)
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert page.is_fifo()


@pytest.mark.parametrize("where", [".", "no/page.html"])
def test_what_can_be_no_file_is_told(tmp_path: Path, where: str) -> None:
    with pytest.raises(InvalidSetup, match="cannot be written"):
        written("new", tmp_path / where)
    assert list(tmp_path.iterdir()) == []
