"""`eigencal chat`: a chat in the terminal, through the drop-in; every answer says how uncertain it is."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from eigencal import ChatOptions, Client, EigencalError, KeptScore
from eigencal.cli.command import Invocation, tell
from eigencal.cli.exit_codes import code_of
from eigencal.cli.jobs import efforts, given
from eigencal.cli.output import Output, colours, harmless, plain, shown

LEAVE = ("/quit", "/exit")
NEW = "/new"
PENDING_EVERY_S, PENDING_ASKED = 0.25, 120
HINT = "/quit or Ctrl-D leaves, /new forgets what was said"


@dataclass
class Turns:
    """What was said so far, and how the next answer is asked for."""

    client: Client
    model: str
    options: dict[str, Any]
    system: str | None
    said: list[dict[str, str]] = field(default_factory=list)

    def ask(self, text: str, write: Callable[[str], object]) -> tuple[str, KeptScore | None]:
        """Return the answer and its score; `write` is told the text as it comes.

        A turn that is broken off, by an error or by Ctrl-C, is not remembered.
        """
        turn = {"role": "user", "content": text}
        start = [{"role": "system", "content": self.system}] if self.system else []
        answer, score = "", None
        pieces = self.client.stream_chat(
            [*start, *self.said, turn],
            eigencal=cast(ChatOptions, self.options) or None,
            model=self.model,
        )
        for piece in pieces:
            answer += piece.content
            write(piece.content)
            score = piece.uncertainty or score
        score = self._settled(score)
        self.said += [turn, {"role": "assistant", "content": answer}]
        return answer, score

    def _settled(self, score: KeptScore | None) -> KeptScore | None:
        """Return a score that is still made once it is there; as it is, if that takes too long."""
        for _ in range(PENDING_ASKED):
            if score is None or score.status != "pending":
                break
            time.sleep(PENDING_EVERY_S)
            score = self.client.get_score(score.id)
        return score


def chat(
    invocation: Invocation,
    *,
    model: Annotated[str | None, typer.Option(help="Model; left out: the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    effort: Annotated[
        str | None,
        typer.Option(help="How many answers to judge by: low, medium or high.", autocompletion=efforts),
    ] = None,
    target_error: Annotated[
        float | None, typer.Option(help="Share of wrong answers allowed, 0..1: asks for a decision.")
    ] = None,
) -> int | None:
    """Chat with the LLM; every answer says how uncertain it is.

    /quit or Ctrl-D leaves, Ctrl-C stops an answer, /new forgets what was said.
    """
    options = given(effort=effort, target_error=target_error)
    with invocation.client() as client:
        named = model or client.models()[0].id
        return _Loop(invocation.out, Turns(client, named, options, system)).run()


class _Loop:
    """Reads turns until there are no more."""

    def __init__(self, out: Output, turns: Turns) -> None:
        self._out, self._turns = out, turns
        self._terminal = sys.stdin.isatty() and not out.json
        self._stopped = False  # Ctrl-C at an empty prompt, once
        self._failed: int | None = None
        self._told: set[str] = set()  # warnings: each once, not below every answer

    def run(self) -> int | None:
        """Return the exit code: that of the last turn, where it failed and nobody could see it."""
        if self._terminal:
            self._out.note(f"{self._turns.model} ({HINT})")
        for text in self._read():
            if text in LEAVE:
                break
            if text == NEW:
                self._turns.said.clear()
            elif text:
                self._turn(text)
        return None if self._terminal else self._failed

    def _read(self) -> Iterator[str]:
        while True:
            try:
                line = input("> ") if self._terminal else sys.stdin.readline()
            except EOFError:
                self._out.note("")
                return
            except KeyboardInterrupt:
                if self._stopped or not self._terminal:
                    raise
                self._stopped = True
                self._out.note(f"({HINT}; Ctrl-C again leaves, too)")
                continue
            if not line and not self._terminal:
                return
            self._stopped = False
            yield line.strip()

    def _turn(self, text: str) -> None:
        self._failed = None
        try:
            answer, score = self._turns.ask(text, self._write)
        except KeyboardInterrupt:
            if not self._terminal:
                raise
            self._out.note("(stopped; this turn is forgotten)")
        except EigencalError as error:
            self._failed = code_of(error)
            tell(self._out, error)
        else:
            self._show(answer, score)

    def _write(self, piece: str) -> None:
        if not self._out.json:
            print(harmless(piece), end="", flush=True)

    def _show(self, answer: str, score: KeptScore | None) -> None:
        if self._out.json:
            told = None if score is None else plain(score)
            self._out.line_of_json({"answer": answer, "uncertainty": told})
            return
        print()
        colours(sys.stdout).print(Text(f"[{told_of(score)}]", style="dim"))
        for warning in score.warnings if score is not None else ():
            if warning.code not in self._told:
                self._told.add(warning.code)
                self._out.note(f"note: {warning.message}")


def told_of(score: KeptScore | None) -> str:
    """Return how uncertain an answer is, on one line."""
    if score is None:
        return "not scored: the service is set to pass answers on"
    if score.status != "scored":
        why = f": {score.warning.message}" if score.warning else ""
        return f"{score.status}{why}"
    parts = []
    if score.probability_correct is not None:
        parts.append(f"P(right) {shown(score.probability_correct)}")
    if score.candidate is not None:
        parts.append(f"share of the meaning {shown(score.candidate.probability)}")
    parts.append(f"of the draws: lambda_max {shown(score.lambda_max)}, entropy {shown(score.entropy)} nats")
    parts.append("calibrated" if score.calibrated else "raw")
    told = ", ".join(parts)
    return harmless(told if score.decision is None else f"{told}. {score.decision.reason}")
