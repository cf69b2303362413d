"""The command `eigencal` as a process, without the settings of this machine."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import PYTHON, ROOT

SOURCES = ROOT / "clients" / "python" / "src"
PATIENCE_S = 300.0  # a guard only: the machine may be busy


def heeds_interrupts() -> None:
    """Handle Ctrl-C like a command in a terminal: background processes of a shell ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Done:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout parsed as JSON."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Stdout parsed as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """The command with its own home folder. `env`: additional variables of each run."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: object, stdin: str | bytes = "", **env: str) -> Done:
        """Run the command to its end."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        ended = subprocess.run(
            self.line(*arguments),
            input=data,
            capture_output=True,
            env=self.environment(**env),
            cwd=self.home,
            timeout=PATIENCE_S,
            check=False,
        )
        return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    @contextmanager
    def started(self, *arguments: object, **env: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start the command and yield its process, which the test may end."""
        process = subprocess.Popen(
            self.line(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(**env),
            cwd=self.home,
            preexec_fn=heeds_interrupts,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def line(self, *arguments: object) -> list[str]:
        """Return the command line."""
        return [PYTHON, "-m", "eigencal.cli", *map(str, arguments)]

    def environment(self, **env: str) -> dict[str, str]:
        """Return this process's environment without settings of the command and of colours."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("EIGENCAL_")}
        for name in ("NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "APPDATA"):
            ours.pop(name, None)
        home = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**ours, **home, "PYTHONPATH": str(SOURCES), "PYTHONUTF8": "0", **self.env, **env}
