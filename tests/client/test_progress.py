"""Progress on stderr: a line that is written over on a terminal, a line now and then in a log."""

import io

import pytest

from eigencal._progress import Shown, line, told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_the_beginning_and_the_end_of_each_stage() -> None:
    out = io.StringIO()
    shown = Shown(out)
    for done in range(1000):
        shown(done, 1000, "sampling")
    shown(1000, 1000, "sampling")
    shown(1000, 1000, "sampling")
    shown(0, 1, "reporting")
    lines = out.getvalue().splitlines()
    assert (lines[0], lines[-2:]) == ("sampling: 0 of 1000", ["sampling: 1000 of 1000", "reporting: 0 of 1"])
    assert len(lines) < 10


def test_a_terminal_gets_a_bar_that_is_written_over() -> None:
    out = Terminal()
    shown = Shown(out)
    shown(1, 2, "scored")
    shown(2, 2, "scored")
    half, whole = "#" * 15 + "." * 15, "#" * 30
    assert out.getvalue() == f"\r\x1b[Kscored: [{half}] 1 of 2\r\x1b[Kscored: [{whole}] 2 of 2\n"


def test_what_has_no_end_yet_is_counted() -> None:
    assert line(7, None, "scored", bar=True) == "scored: 7"
    assert line(0, 0, "queued", bar=False) == "queued: 0 of 0"


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    told(False)(1, 1, "scored")
    assert capsys.readouterr().err == ""
    told(True)(1, 1, "scored")
    assert capsys.readouterr().err == "scored: 1 of 1\n"
