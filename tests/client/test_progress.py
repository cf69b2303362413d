"""Progress on stderr: a line that is written over on a terminal, a line now and then in a log."""

import io

import pytest

from eigencal._progress import ProgressLine, as_callback


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_the_beginning_and_the_end_of_each_stage() -> None:
    out = io.StringIO()
    shown = ProgressLine(out)
    for done in range(1000):
        shown(done, 1000, "sampling")
    shown(1000, 1000, "sampling")
    shown(1000, 1000, "sampling")
    shown(0, 1, "reporting")
    lines = out.getvalue().splitlines()
    assert (lines[0], lines[-2:]) == ("sampling: 0 of 1000", ["sampling: 1000 of 1000", "reporting: 0 of 1"])
    assert len(lines) < 10


def test_a_terminal_gets_a_line_that_is_written_over() -> None:
    out = Terminal()
    shown = ProgressLine(out)
    shown(1, 2, "scored")
    shown(2, 2, "scored")
    assert out.getvalue() == "\r\x1b[Kscored: 1 of 2\r\x1b[Kscored: 2 of 2\n"


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    as_callback(False)(1, 1, "scored")
    assert capsys.readouterr().err == ""
    as_callback(True)(7, None, "scored")
    assert capsys.readouterr().err == "scored: 7\n"
