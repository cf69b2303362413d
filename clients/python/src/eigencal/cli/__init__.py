"""The command line `eigencal`. It needs the extra `cli` (typer, rich); the client alone does not."""

import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich")


def main() -> int:
    """Run the command with the arguments of the process; return its exit code (see `eigencal --help`)."""
    if any(find_spec(name) is None for name in NEEDED):
        print('eigencal: the command line is an extra: pip install "eigencal[cli]"', file=sys.stderr)
        return 2
    try:
        from eigencal.cli.app import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while it is loaded
        return 130
