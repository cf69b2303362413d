"""Exit codes: one table, from which `--help`, the documentation and the command itself are."""

from enum import IntEnum

import eigencal


class ExitCode(IntEnum):
    """What became of a command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_ANSWER = 3
    KEY = 4
    NOT_FOUND = 5
    REFUSED = 6
    TROUBLE = 7
    SOME_FAILED = 8
    JOB_ENDED = 9
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed in a way that no other code names (a fault of the command, a full disk)",
    ExitCode.USAGE: "wrong arguments, or a file, folder or profile that cannot be used; nothing was sent",
    ExitCode.NO_ANSWER: "the service does not answer, or what answers is not the service",
    ExitCode.KEY: "the service wants a key, or another one (401, 403)",
    ExitCode.NOT_FOUND: "there is no such calibration, job, key or model (404)",
    ExitCode.REFUSED: "the service refused the request: its data or options are at fault (other 4xx)",
    ExitCode.TROUBLE: "the service, its LLM or its embedder has trouble: try again later (429, 5xx)",
    ExitCode.SOME_FAILED: "score --file: every question has its line, and some lines are errors",
    ExitCode.JOB_ENDED: "the job that was waited for failed or was cancelled",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
    ExitCode.PIPE_CLOSED: "whoever read the output has gone, as `head` does",
}

# The first that fits counts: the narrow classes stand before those they belong to.
_BY_ERROR: tuple[tuple[type[eigencal.EigencalError], ExitCode], ...] = (
    (eigencal.InvalidSetup, ExitCode.USAGE),
    (eigencal.NoAnswer, ExitCode.NO_ANSWER),
    (eigencal.UnexpectedAnswer, ExitCode.NO_ANSWER),
    (eigencal.JobEnded, ExitCode.JOB_ENDED),
    (eigencal.Unauthorized, ExitCode.KEY),
    (eigencal.Forbidden, ExitCode.KEY),
    (eigencal.NotFound, ExitCode.NOT_FOUND),
    (eigencal.RateLimited, ExitCode.TROUBLE),
    (eigencal.RequestRefused, ExitCode.REFUSED),
    (eigencal.ServiceError, ExitCode.TROUBLE),
)


def code_of(error: eigencal.EigencalError) -> ExitCode:
    """Return the exit code of a command that ended with this error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)


def table() -> str:
    """Return the table for `--help`: a code and its meaning on each line."""
    return "\n".join(f"{code.value:>4}  {meaning}" for code, meaning in MEANINGS.items())
