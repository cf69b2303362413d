"""The command `eigencal chat`: a chat in the terminal through the drop-in, with scored answers."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated, cast

import typer

from eigencal import ChatOptions, Client, EigencalError, KeptScore
from eigencal._base_client import without_none
from eigencal.cli.command import ExitCode, Invocation, code_of, show_error
from eigencal.cli.output import Output, format_cell, harmless
from eigencal.cli.responses import stream_response
from eigencal.cli.score import NumSamples, TargetError, claim_lines

LEAVE = ("/quit", "/exit")
NEW = "/new"
POLL_S, MAX_POLLS = 0.25, 120  # while a score is pending


def chat(
    invocation: Invocation,
    *,
    model: Annotated[str | None, typer.Option(help="Model; default: the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    num_samples: NumSamples = None,
    target_error: TargetError = None,
    responses: Annotated[
        bool, typer.Option("--responses", help="Call /v1/responses instead of /v1/chat/completions.")
    ] = False,
) -> ExitCode | None:
    """Chat with the LLM; each answer is shown with its uncertainty.

    /quit or Ctrl-D leaves, Ctrl-C stops an answer, /new forgets the conversation.
    """
    out, is_terminal = invocation.out, sys.stdin.isatty() and not invocation.out.json
    stream = stream_response if responses else _stream_chat
    options = cast(ChatOptions, without_none({"num_samples": num_samples, "target_error": target_error}))
    start = [{"role": "system", "content": system}] if system else []
    turns: list[dict[str, str]] = []
    warned: set[str] = set()
    failed = None
    with invocation.client() as client:
        model = model or client.models()[0].id
        if is_terminal:
            out.note(f"{model} (/quit or Ctrl-D leaves, /new forgets the conversation)")
        for text in _read(is_terminal=is_terminal):
            if text in LEAVE:
                break
            if text == NEW:
                turns.clear()
                continue
            turn, failed = {"role": "user", "content": text}, None
            try:
                messages = [*start, *turns, turn]
                answer, score = _show_answer(out, client, stream(client, messages, options or None, model))
            except KeyboardInterrupt:
                if not is_terminal:
                    raise
                out.note("(stopped; this turn is forgotten)")
            except EigencalError as error:
                failed = code_of(error)
                show_error(out, error)
            else:
                turns += [turn, {"role": "assistant", "content": answer}]
                _show(out, answer, score, warned)
    return None if is_terminal else failed


def _read(*, is_terminal: bool) -> Iterator[str]:
    """Yield the turns, one per line of stdin, without empty lines."""
    while True:
        try:
            line = input("> " if is_terminal else "")
        except EOFError:
            if is_terminal:
                print()
            return
        if line.strip():
            yield line.strip()


def _stream_chat(
    client: Client, messages: list[dict[str, str]], options: ChatOptions | None, model: str
) -> Iterator[tuple[str, KeptScore | None]]:
    """Yield the text of an answer in pieces; the score comes with the last piece."""
    for chunk in client.stream_chat(messages, eigencal=options, model=model):
        yield chunk.content, chunk.uncertainty


def _show_answer(
    out: Output, client: Client, pieces: Iterator[tuple[str, KeptScore | None]]
) -> tuple[str, KeptScore | None]:
    """Print the answer while it arrives, and return it with its score."""
    answer, score = "", None
    for text, uncertainty in pieces:
        answer += text
        score = uncertainty or score
        if not out.json:
            print(harmless(text), end="", flush=True)
    for _ in range(MAX_POLLS):
        if score is None or score.status != "pending":
            break
        time.sleep(POLL_S)
        score = client.get_score(score.id)
    return answer, score


def _show(out: Output, answer: str, score: KeptScore | None, warned: set[str]) -> None:
    """Write the uncertainty of an answer. Each warning is shown once per chat."""
    if out.json:
        out.show({"answer": answer, "uncertainty": score}, ())
        return
    print()
    typer.secho(f"[{format_uncertainty(score)}]", dim=True)
    if score is None:
        return
    out.lines(claim_lines([claim for claim in score.claims or () if claim.doubtful]))
    for warning in score.warnings or ():
        if warning.code not in warned:
            warned.add(warning.code)
            out.note(f"note: {warning.message}")


def format_uncertainty(score: KeptScore | None) -> str:
    """Return the uncertainty of an answer on one line."""
    if score is None:
        return "not scored: the service is set to pass answers on"
    if score.status != "scored":
        why = f": {score.warning.message}" if score.warning else ""
        return f"{score.status}{why}"
    parts = []
    if score.probability_correct is not None:
        parts.append(f"P(right) {format_cell(score.probability_correct)}")
    if score.candidate is not None and score.candidate.probability is not None:
        parts.append(f"share of the meaning {format_cell(score.candidate.probability)}")
    if score.lambda_max is not None:
        parts.append(
            f"of the draws: lambda_max {format_cell(score.lambda_max)}, "
            f"entropy {format_cell(score.entropy)} nats"
        )
    parts.append("calibrated" if score.calibrated else "raw")
    line = ", ".join(parts)
    return harmless(line if score.decision is None else f"{line}. {score.decision.reason}")
