"""`eigencal chat`: a chat in the terminal, through the drop-in; every answer says how uncertain it is."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated, cast

import typer

from eigencal import ChatOptions, Client, EigencalError, KeptScore
from eigencal._base_client import without_none
from eigencal.cli.command import Invocation, code_of, show_error
from eigencal.cli.output import Output, format_cell, harmless
from eigencal.cli.score import Effort, TargetError, claim_lines

LEAVE = ("/quit", "/exit")
NEW = "/new"
POLL_S, MAX_POLLS = 0.25, 120  # of a score that is pending
HINT = "/quit or Ctrl-D leaves, /new forgets the conversation"


def chat(
    invocation: Invocation,
    *,
    model: Annotated[str | None, typer.Option(help="Model; left out: the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    effort: Effort = None,
    target_error: TargetError = None,
) -> int | None:
    """Chat with the LLM; every answer says how uncertain it is.

    /quit or Ctrl-D leaves, Ctrl-C stops an answer, /new forgets the conversation.
    """
    options = cast(ChatOptions, without_none({"effort": effort, "target_error": target_error}))
    with invocation.client() as client:
        return _Chat(invocation.out, client, model or client.models()[0].id, options, system).run()


class _Chat:
    """A conversation: reads turns until there are no more."""

    def __init__(
        self, out: Output, client: Client, model: str, options: ChatOptions, system: str | None
    ) -> None:
        self._out, self._client, self._model, self._options = out, client, model, options
        self._start = [{"role": "system", "content": system}] if system else []
        self._turns: list[dict[str, str]] = []
        self._is_terminal = sys.stdin.isatty() and not out.json
        self._stopped = False  # Ctrl-C at an empty prompt, once
        self._failed: int | None = None
        self._warned: set[str] = set()  # warnings: each once, not below every answer

    def run(self) -> int | None:
        """Return the exit code: that of the last turn, where it failed and nobody could see it."""
        if self._is_terminal:
            self._out.note(f"{self._model} ({HINT})")
        for text in self._read():
            if text in LEAVE:
                break
            if text == NEW:
                self._turns.clear()
            elif text:
                self._turn(text)
        return None if self._is_terminal else self._failed

    def _read(self) -> Iterator[str]:
        while True:
            try:
                line = input("> ") if self._is_terminal else sys.stdin.readline()
            except EOFError:
                self._out.note("")
                return
            except KeyboardInterrupt:
                if self._stopped or not self._is_terminal:
                    raise
                self._stopped = True
                self._out.note(f"({HINT}; Ctrl-C again leaves, too)")
                continue
            if not line and not self._is_terminal:
                return
            self._stopped = False
            yield line.strip()

    def _turn(self, text: str) -> None:
        """Ask; a turn that is broken off, by an error or by Ctrl-C, is not remembered."""
        self._failed = None
        turn = {"role": "user", "content": text}
        answer, score = "", None
        try:
            for piece in self._client.stream_chat(
                [*self._start, *self._turns, turn], eigencal=self._options or None, model=self._model
            ):
                answer += piece.content
                score = piece.uncertainty or score
                if not self._out.json:
                    print(harmless(piece.content), end="", flush=True)
            for _ in range(MAX_POLLS):
                if score is None or score.status != "pending":
                    break
                time.sleep(POLL_S)
                score = self._client.get_score(score.id)
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            self._out.note("(stopped; this turn is forgotten)")
        except EigencalError as error:
            self._failed = code_of(error)
            show_error(self._out, error)
        else:
            self._turns += [turn, {"role": "assistant", "content": answer}]
            self._show(answer, score)

    def _show(self, answer: str, score: KeptScore | None) -> None:
        if self._out.json:
            self._out.line_of_json({"answer": answer, "uncertainty": score})
            return
        print()
        typer.secho(f"[{format_uncertainty(score)}]", dim=True)
        claims = (score.claims or ()) if score is not None else ()
        self._out.lines(claim_lines([claim for claim in claims if claim.doubtful]))
        for warning in (score.warnings or ()) if score is not None else ():
            if warning.code not in self._warned:
                self._warned.add(warning.code)
                self._out.note(f"note: {warning.message}")


def format_uncertainty(score: KeptScore | None) -> str:
    """Return how uncertain an answer is, on one line."""
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
    served = "raw" if score.calibration is None else "by the default calibration"
    parts.append("calibrated" if score.calibrated else served)
    line = ", ".join(parts)
    return harmless(line if score.decision is None else f"{line}. {score.decision.reason}")
