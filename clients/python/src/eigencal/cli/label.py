"""The command `eigencal label`: judge answers to your own questions, and calibrate on the verdicts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from eigencal import Client, InvalidSetupError
from eigencal.cli.bulk import numbered_lines, read_questions
from eigencal.cli.command import Invocation
from eigencal.cli.output import format_cell, harmless, one_line

ENOUGH = 10  # minimum verdicts for a calibration
ROWS = Path("labelled.jsonl")


def label(
    invocation: Invocation,
    file: Annotated[
        Path | None, typer.Argument(help="Questions: plain lines, or .jsonl. Default: type them.")
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the verdicts; later runs append to it.")
    ] = ROWS,
) -> None:
    """Ask your own questions, judge the answers, and calibrate on ten verdicts or more."""
    rows = _labelled(out)
    asked = None if file is None else _prompts(file)
    with invocation.client() as client:
        before = _judge(invocation, client, rows, out, asked)
        if len(rows) < ENOUGH:
            invocation.out.note(f"{out} has {len(rows)} of {ENOUGH} verdicts: run the command again for more")
            return
        job = client.wait(client.calibrate(out, name=f"{len(rows)} verdicts").id, progress=True)
        moved = [
            {"prompt": prompt, "before": was, "after": client.score(prompt).probability_correct}
            for prompt, was in list(before.items())[:ENOUGH]
        ]
    invocation.out.show({"job": job, "moved": moved}, _lines(str(job.decision), moved))


def _labelled(out: Path) -> list[dict[str, Any]]:
    """Return the rows of an earlier command. Raises InvalidSetupError."""
    if not out.exists():
        return []
    try:
        return [dict(json.loads(line)) for _, line in numbered_lines(str(out), out.read_bytes())]
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSetupError(f"{out} is not a file of verdicts: {error}.") from None


def _prompts(file: Path) -> list[str]:
    """Return the questions of a file. Raises InvalidSetupError."""
    questions = read_questions(str(file), file.read_bytes(), {}, "auto")
    lacking = next((one.line for one in questions if not one.request.get("prompt")), None)
    if lacking is not None:
        raise InvalidSetupError(f"{file}: line {lacking} has no prompt.")
    return [str(one.request["prompt"]) for one in questions]


def _judge(
    invocation: Invocation,
    client: Client,
    rows: list[dict[str, Any]],
    out: Path,
    asked: list[str] | None,
) -> dict[str, float | None]:
    """Ask questions and add a row for each verdict; return P(correct) of each answer by its question."""
    done = {_plain(str(row.get("prompt"))) for row in rows}
    before = dict[str, float | None]()
    for prompt in _typed(rows) if asked is None else asked:
        if _plain(prompt) in done:
            continue
        score = client.score(prompt)
        invocation.out.note(f"{len(rows) + 1}. {prompt}")
        # Each line is marked, so that an answer cannot imitate this command.
        typer.echo("   | " + harmless(score.answer).replace("\n", "\n   | "), err=True)
        verdict = _verdict()
        if verdict == "q":
            break
        if verdict == "s":
            continue
        row = {"prompt": prompt, "answer": score.answer, "correct": verdict == "y"}
        _append(out, json.dumps(row, ensure_ascii=False))
        rows.append(row)
        done.add(_plain(prompt))
        before[prompt] = score.probability_correct
    return before


def _plain(prompt: str) -> str:
    """Return a question without case and additional white space: copies count once."""
    return " ".join(prompt.casefold().split())


def _append(out: Path, line: str) -> None:
    """Add a line to a file, which may have lost its last line end."""
    with out.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode("utf-8", "replace") + b"\n")


def _asked(text: str, **options: Any) -> str | None:
    """Return what is typed at a prompt; None at the end of the input."""
    try:
        return str(typer.prompt(text, err=True, **options)).strip()
    except typer.Abort as stopped:
        if isinstance(stopped.__context__, EOFError):
            return None
        raise


def _typed(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the questions that are typed, up to an empty one."""
    while True:
        hint = (
            f"Question {len(rows) + 1} of {ENOUGH}" if len(rows) < ENOUGH else "Question (empty: calibrate)"
        )
        prompt = _asked(hint, default="", show_default=False)
        if not prompt:
            return
        yield prompt


def _verdict() -> str:
    while True:
        typed = _asked("   Right? y, n, s (skip), q (stop)")
        if typed is None:
            return "q"
        if typed[:1].lower() in ("y", "n", "s", "q"):
            return typed[:1].lower()


def _lines(decision: str, moved: list[dict[str, Any]]) -> Iterator[str]:
    yield decision
    if moved:
        yield "P(correct) before and after:"
    for row in moved:
        yield f"  {format_cell(row['before'])} -> {format_cell(row['after'])}  {one_line(row['prompt'])}"
