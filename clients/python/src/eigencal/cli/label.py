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

ENOUGH = 10  # verdicts, the fewest that a calibration takes
ROWS = Path("labelled.jsonl")


def label(
    invocation: Invocation,
    file: Annotated[
        Path | None, typer.Argument(help="Questions: plain lines, or .jsonl. Left out: you type them.")
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the verdicts; a repeated command continues it.")
    ] = ROWS,
) -> None:
    """Ask your own questions, judge the answers, and calibrate on ten verdicts or more."""
    rows = _labelled(out)
    asked = None if file is None else _prompts(file)
    with invocation.client() as client:
        before = _judge(invocation, client, rows, out, asked)
        if len(rows) < ENOUGH:
            again = f"run the command again for {ENOUGH - len(rows)} more"
            invocation.out.note(f"{len(rows)} verdicts are in {out}: {again}")
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
        raise InvalidSetupError(f"{out} holds something other than verdicts: {error}.") from None


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
    done = {row.get("prompt") for row in rows}
    before = dict[str, float | None]()
    for prompt in _typed(rows) if asked is None else asked:
        if prompt in done:
            continue
        score = client.score(prompt)
        invocation.out.note(f"{len(rows) + 1}. {prompt}")
        typer.echo(f"   {harmless(score.answer)}", err=True)
        verdict = _verdict()
        if verdict == "q":
            break
        if verdict == "s":
            continue
        row = {"prompt": prompt, "answer": score.answer, "correct": verdict == "y"}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows.append(row)
        done.add(prompt)
        before[prompt] = score.probability_correct
    return before


def _typed(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the questions that are typed, up to an empty one."""
    while True:
        hint = (
            f"Question {len(rows) + 1} of {ENOUGH}" if len(rows) < ENOUGH else "Question (empty: calibrate)"
        )
        prompt = typer.prompt(hint, default="", show_default=False, err=True).strip()
        if not prompt:
            return
        yield prompt


def _verdict() -> str:
    while True:
        typed = typer.prompt("   Right? y, n, s (skip), q (stop)", err=True).strip().lower()[:1]
        if typed in ("y", "n", "s", "q"):
            return str(typed)


def _lines(decision: str, moved: list[dict[str, Any]]) -> Iterator[str]:
    yield decision
    if moved:
        yield "P(correct) before and after:"
    for row in moved:
        yield f"  {format_cell(row['before'])} -> {format_cell(row['after'])}  {one_line(row['prompt'])}"
