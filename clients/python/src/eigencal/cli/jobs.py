"""The command `eigencal jobs`, and following a job."""

from collections.abc import Iterator
from typing import Annotated

import typer

from eigencal import Client, InvalidSetupError, Job
from eigencal.cli.command import Invocation

COLUMNS = ("id", "kind", "name", "state", "stage", "done", "total", "created_at", "calibration_id")
Watch = Annotated[bool, typer.Option("--watch", help="Follow the job until it ends.")]
Name = Annotated[str | None, typer.Option(help="A name for people.")]
Seed = Annotated[int | None, typer.Option(help="Seed of folds and draws.")]
NumSamples = Annotated[int | None, typer.Option(help="Answers to draw per question.")]


def jobs(
    invocation: Invocation,
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One job; left out: all.")] = None,
    *,
    watch: Watch = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the job and forget its rows.")] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Resume a failed job, or ask again for refused rows.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of jobs to list.")] = 100,
) -> None:
    """List the jobs, latest first; or show, follow, cancel or resume one."""
    if job_id is None and (watch or cancel or retry):
        raise InvalidSetupError("--watch, --cancel and --retry need the ID of a job.")
    if cancel and (retry or watch):
        raise InvalidSetupError("--cancel goes with neither --retry nor --watch.")
    with invocation.client() as client:
        if job_id is None:
            invocation.out.table(client.jobs(limit), COLUMNS, "there is no job")
            return
        ask = client.cancel if cancel else client.retry if retry else client.job
        show_job(invocation, client, ask(job_id), watch=watch)


def show_job(invocation: Invocation, client: Client, job: Job, *, watch: bool) -> None:
    """Show a job; with `watch`, after it succeeded. Raises JobEndedError if it failed."""
    if watch:
        try:
            job = client.wait(job.id, progress=True)
        except KeyboardInterrupt:
            invocation.out.note(f"the job goes on: eigencal jobs {job.id} --watch")
            raise
    invocation.out.show(job, _lines(job))


def _lines(job: Job) -> Iterator[str]:
    """Yield a summary of a job in lines of text."""
    yield f"{job.id}  {job.kind}  {job.state}" + (f" ({job.stage})" if job.stage else "")
    if job.note:
        yield job.note
    if job.error is not None:
        yield f"{job.error.code}: {job.error.detail}"
    if job.refused_rows:
        again = f"eigencal jobs {job.id} --retry asks again"
        yield f"{job.refused_rows} rows were refused by the LLM server: {again}"
    if job.calibration_id:
        yield f"calibration {job.calibration_id}: eigencal report {job.calibration_id} --open"
        if job.decision:
            yield job.decision
    elif not job.finished:
        yield f"eigencal jobs {job.id} --watch follows it"
