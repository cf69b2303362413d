"""Progress on stderr: one updated line on a terminal, few lines in a log."""

import sys

import pytest

from eigencal._progress import as_callback


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [
        (False, "sampling: 1 of 3\nsampling: 3 of 3\n"),
        (True, "".join(f"\r\x1b[Ksampling: {done} of 3" for done in (1, 2, 3)) + "\n"),
    ],
)
def test_shown_lines(
    is_terminal: bool, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    shows, hides = as_callback(True), as_callback(False)
    for done in (1, 2, 3):
        shows(done, 3, "sampling")
        hides(done, 3, "nothing")
    assert capsys.readouterr().err == shown
