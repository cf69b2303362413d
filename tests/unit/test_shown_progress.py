"""Progress of a long command: lines into a file, a bar on a terminal."""

import io

from service.progress import ShownProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_the_beginning_and_the_end_of_each_stage() -> None:
    out = io.StringIO()
    with ShownProgress(out) as shown:
        shown.stage("drawing", 3)
        shown.advance()
        shown.advance(2, "done")
        shown.stage("embedding", 2)
        shown.finish()
        shown.finish()  # there is nothing left
    assert out.getvalue().splitlines() == [
        "drawing: 0 of 3",
        "drawing: 3 of 3 (done)",
        "embedding: 0 of 2",
        "embedding: 2 of 2",
    ]


def test_a_terminal_gets_a_bar() -> None:
    out = Terminal()
    with ShownProgress(out) as shown:
        shown.stage("drawing", 3)
        shown.advance(2, "waiting for the LLM")
        shown.finish()
    said = out.getvalue()
    assert "drawing" in said
    assert "3/3" in said
    assert "of 3" not in said, "no lines beside the bar"
