"""The command line `eigencal`. It needs the extra `cli` (typer), unlike the client."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    if find_spec("typer") is None:
        print('eigencal: the command line is an extra: pip install "eigencal[cli]"', file=sys.stderr)
        sys.exit(2)
    from eigencal.cli.app import app

    for stream in (sys.stdin, sys.stdout, sys.stderr):  # UTF-8, whatever the console's code page
        if hasattr(stream, "reconfigure"):  # a daemon's streams may be closed
            stream.reconfigure(encoding="utf-8", errors="replace")
    app(prog_name="eigencal")
