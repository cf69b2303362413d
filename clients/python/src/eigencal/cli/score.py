"""The command `eigencal score`: score one question, or a file of questions."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eigencal import Claim, InvalidSetupError, Score, ScoreOptions
from eigencal.cli.bulk import Format, ask, read_questions, results_at
from eigencal.cli.command import ExitCode, Invocation
from eigencal.cli.output import Doubtful

PATIENCE_S = 600.0


def _number_or_auto(text: str) -> int | str:
    return text if text == "auto" else int(text)


NumSamples = Annotated[
    Any, typer.Option(parser=_number_or_auto, metavar="0..256|auto", help="Number of answers to draw.")
]
TargetError = Annotated[
    float | None, typer.Option(help="Allowed share of wrong answers, 0..1; adds a decision.")
]


def score(
    invocation: Invocation,
    prompt: Annotated[str | None, typer.Argument(help="The question; - reads it from stdin.")] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Questions: plain lines, or .jsonl of score requests; - is stdin."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File for the results; a repeated command continues it."),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="Format of the file; auto: by its suffix.")
    ] = "auto",
    num_samples: NumSamples = None,
    candidate: Annotated[str | None, typer.Option(help="Your own text to judge by the answers.")] = None,
    candidate_logprob: Annotated[
        float | None,
        typer.Option(help="Natural-log probability of the candidate by its LLM. Needed for 0 samples."),
    ] = None,
    claims: Annotated[
        bool | None, typer.Option(help="Score it claim by claim; default: if it is long.")
    ] = None,
    target_error: TargetError = None,
    confidence: Annotated[float | None, typer.Option(help="Confidence that --target-error holds.")] = None,
    calibration: Annotated[str | None, typer.Option(help="active, none, or an id.")] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask the LLM server for.")] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="Time limit for the score in ms.")] = None,
    patience: Annotated[
        float,
        typer.Option(min=0, help="With --file: seconds to wait for an unavailable service."),
    ] = PATIENCE_S,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="With --file: ask again where the results have errors.")
    ] = False,
) -> int | None:
    """Score how uncertain the LLM is about a question, or about each question of a file."""
    options = ScoreOptions(
        num_samples=num_samples,
        candidate=candidate,
        candidate_logprob=candidate_logprob,
        claims=claims,
        target_error=target_error,
        confidence=confidence,
        calibration=calibration,
        model=model,
        deadline_ms=deadline_ms,
    )
    if (prompt is None) == (file is None):
        raise InvalidSetupError("Give a question, or --file with questions: one of the two.")
    if file is None:
        if out is not None or retry_errors:
            raise InvalidSetupError("--out and --retry-errors go with --file.")
        text = sys.stdin.read().strip() if prompt == "-" else prompt
        with invocation.client() as client:
            scored = client.score(text, **options)
        invocation.out.show(scored, _lines(scored))
        return None
    if out is not None and out.exists() and file != "-" and out.samefile(file):
        raise InvalidSetupError(f"{out} holds the questions: give another --out. Nothing was changed.")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    questions = read_questions(file, data, options, format_)
    note, total = invocation.out.note, len(questions)
    with results_at(out, questions, retry_errors=retry_errors) as results:
        if results.done:
            note(f"{len(results.done)} of {total} are done already")
        try:
            ask(invocation.url, questions, results, note, patience_s=patience)
        finally:
            failed, missing = results.num_failed, total - len(results.done)
            where = f" in {out}" if out else ""
            again = "; run the same command again to go on" if missing and out else ""
            note(f"scored: {len(results.done) - failed}, errors: {failed}, left: {missing}{where}{again}")
        return ExitCode.SOME_FAILED if failed else ExitCode.DONE


def _lines(score: Score) -> Iterator[str]:
    """Yield a summary of a score in lines of text."""
    yield score.answer
    yield ""
    if score.probability_correct is not None:
        yield f"P(answer is right)          {score.probability_correct:.3f}"
    if score.candidate is not None and score.candidate.probability is not None:
        right = score.candidate.probability_correct
        right_shown = "" if right is None else f"   P(right) {right:.3f}"
        yield f"candidate: probability      {score.candidate.probability:.3f}{right_shown}"
    if score.decision is not None:
        yield f"decision                    {score.decision.action}"
        yield score.decision.reason
    by = f"calibration {score.calibration.id}" if score.calibration else "raw: no calibration"
    if score.lambda_max is None or score.entropy is None or score.entropy_normalized is None:
        yield f"answers                     none drawn   {by}"
    else:
        share = f"{score.entropy_normalized:.0%} of the largest"
        yield f"confidence (lambda_max)     {score.lambda_max:.3f}   {by}"
        yield f"uncertainty (entropy, nats) {score.entropy:.3f}   {share}"
        distinct = f"{score.num_distinct} distinct, by {score.model}"
        yield f"answers                     {score.num_samples}, {distinct}"
    if score.claims is not None:
        yield f"claims                      {len(score.claims)}"
        yield from claim_lines(score.claims)
    for warning in score.warnings:
        yield f"note: {warning.message}"


def claim_lines(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield each claim and its support by the answers; doubtful claims begin with `?`, in colour."""
    for claim in claims:
        support, right = claim.support, claim.probability_correct
        yield Doubtful(f"? {claim.text}") if claim.doubtful else f"- {claim.text}"
        parts = [] if right is None else [f"P(right) {right:.3f}"]
        if support is not None:
            example = "" if support.example is None else f": {support.example}"
            parts.append(f"{support.agree} agree, {support.silent} silent, {support.differ} differ{example}")
        if parts:
            yield f"  {', '.join(parts)}"
