"""The command in a pseudo-terminal, with simulated input."""

import os
import pty
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command import PATIENCE_S, Command, heeds_interrupts
from tests.support.services import until


class Terminal:
    """A terminal that runs the command."""

    def __init__(self, descriptor: int, process: "subprocess.Popen[bytes]") -> None:
        self.descriptor, self.process = descriptor, process
        self.said, self._read = "", 0

    def until(self, text: str) -> str:
        """Return the output since the last call, up to and including this text."""
        while (end := self.said.find(text, self._read)) < 0:
            ready, _, _ = select.select([self.descriptor], [], [], PATIENCE_S)
            assert ready, f"{text!r} does not come after {self.said!r}"
            self.said += os.read(self.descriptor, 65536).decode(errors="replace")
        begin, self._read = self._read, end + len(text)
        return self.said[begin : self._read]

    def interrupts(self) -> None:
        """Press Ctrl-C at a prompt, once the command waits there.

        Python's input() misses a signal between writing its prompt and waiting for a key. Only a test is fast
        enough to hit this gap.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        self.types("\x03")

    def rest(self) -> str:
        """Return the remaining output, after the command has ended."""
        while True:
            try:
                self.said += os.read(self.descriptor, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                return self.said[self._read :]

    def types(self, text: str) -> None:
        os.write(self.descriptor, text.encode())


def _at_its_own_terminal() -> None:
    # The first terminal opened by a session becomes its controlling terminal, with Ctrl-C.
    os.close(os.open(os.ttyname(0), os.O_RDWR))
    heeds_interrupts()


@contextmanager
def terminal(command: Command, *arguments: object, **env: str) -> Iterator[Terminal]:
    """Run the command in its own terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command.line(*arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=command.environment(TERM="xterm", **env),
        cwd=command.home,
        start_new_session=True,
        preexec_fn=_at_its_own_terminal,
    )
    os.close(theirs)
    with process:
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            os.close(ours)
