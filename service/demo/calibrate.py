"""The demonstration's calibration: the bundled dev set posted once, its job watched."""

import hashlib
import threading
from dataclasses import dataclass
from itertools import count
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from service.demo.background import DemoError
from service.demo.http import Http
from service.demo_data import QUESTIONS, RECORDED

POLL_S = 0.1
OPTIONS = {"name": "everyday questions", "drawn_by": "service"}
OVER = ("failed", "cancelled")


@dataclass(frozen=True, slots=True)
class DevFile:
    """A file to post, and the key under which posting it again is the same job."""

    name: str
    content: bytes
    key: str


def dev_data(*, recorded: bool, setup: str) -> DevFile:
    """Return the questions, with the recorded answers where these are the service's own.

    `setup` names what answers are drawn and embedded with: another set-up needs a calibration of its own.
    """
    path = RECORDED if recorded else QUESTIONS
    content = path.read_bytes()
    digest = hashlib.sha256(content + repr((OPTIONS, setup)).encode()).hexdigest()[:16]
    return DevFile(path.name, content, f"everyday-{digest}")


def calibrate(console: Console, http: Http, dev: DevFile) -> str:
    """Calibrate, or find the calibration of an earlier run; return its id. Raises DemoError when it fails."""
    job = _posted(http, dev)
    if job["state"] == "succeeded":
        console.print(f"Already calibrated on {dev.name} by an earlier run.")
    else:
        console.print(f"Calibrating on {dev.name} ({len(dev.content.splitlines())} questions) ...")
        job = _watched(console, http, job)
    if job["state"] != "succeeded":
        why = (job["error"] or {}).get("detail", "no reason given")
        raise DemoError(f"The calibration was {job['state']}: {why}")
    return str(job["calibration_id"])


def _posted(http: Http, dev: DevFile) -> dict[str, Any]:
    """Return the job of the dev set: the one there is, unless that one came to nothing."""
    for attempt in count(1):
        job = http.post(
            "/calibrate",
            data=OPTIONS,
            files={"file": (dev.name, dev.content)},
            headers={"Idempotency-Key": f"{dev.key}-{attempt}"},
        )
        if job["state"] not in OVER:
            return job
    raise AssertionError("unreachable")


def _watched(console: Console, http: Http, job: dict[str, Any]) -> dict[str, Any]:
    """Poll the job until it ends, with a bar; without a terminal, a line for each stage."""
    pause, stage = threading.Event(), None
    columns = (TextColumn("  {task.description:<10}"), BarColumn(30), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("waiting", total=None)
        while job["state"] in ("queued", "running"):
            if job["stage"] not in (None, stage) and not console.is_terminal:
                console.print(f"  {job['stage']} ...")
            stage = job["stage"]
            _show(bar, task, job)
            pause.wait(POLL_S)
            job = http.get(f"/jobs/{job['id']}")
        bar.update(task, description=job["state"], completed=1, total=1)
    return job


def _show(bar: Progress, task: Any, job: dict[str, Any]) -> None:
    said = job["note"] or job["stage"] or "waiting"
    bar.update(task, description=said[:40], completed=job["done"], total=job["total"] or None)
