"""The command line `eigencal`. It needs the extra `cli` (typer, filelock); the client alone does not."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command with the arguments of the process, and end it with its exit code."""
    if any(find_spec(name) is None for name in ("filelock", "typer")):
        print('eigencal: the command line is an extra: pip install "eigencal[cli]"', file=sys.stderr)
        sys.exit(2)
    try:
        from eigencal.cli.app import app
        from eigencal.cli.output import prepare
    except KeyboardInterrupt:
        sys.exit(130)
    prepare()
    app(prog_name="eigencal")
