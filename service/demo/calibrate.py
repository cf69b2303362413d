"""The demonstration's calls: JSON in and out, and its calibration, posted once and watched."""

import hashlib
import threading
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from types import TracebackType
from typing import Any, Self

import httpx
from rich.console import Console

from service.demo.background import DemoError
from service.demo_data import QUESTIONS, RECORDED
from service.shown_progress import ShownProgress

TIMEOUT_S = 300
POLL_S = 0.1
OPTIONS = {"name": "everyday questions", "drawn_by": "service"}
OVER = ("failed", "cancelled")


class Http:
    """A client of one service. Calls raise DemoError when refused, httpx.TransportError when unanswered."""

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # trust_env: a proxy of the environment is not the way to this machine.
        self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON at a path."""
        return _body(self._client.get(path, headers={"Accept": "application/json"}))

    def post(self, path: str, **sent: Any) -> dict[str, Any]:
        """Post what httpx takes (json, data, files, headers) and return the JSON answered."""
        return _body(self._client.post(path, **sent))


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = response.text[:200]
    raise DemoError(f"The service answered {response.status_code}: {said}{_remedy(response)}")


def _remedy(response: httpx.Response) -> str:
    """Return what helps where keys that were made in an earlier run have closed the service to this one."""
    if response.status_code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ""
    return (
        " Keys were made in its database: set EIGENCAL_ADMIN_KEY to a word of yours, which opens everything, "
        "and run this again (docs/operating.md, Keys made while it runs)."
    )


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
    """Return the job of the dev set: that of an earlier run, unless it failed or was cancelled."""
    # A key names one job for ever, also one that failed: every attempt has its own.
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
    """Poll the job until it ends, and show how far it is."""
    pause = threading.Event()
    with ShownProgress(console.file) as shown:
        view = _JobView(shown)
        while job["state"] in ("queued", "running"):
            view.show(job)
            pause.wait(POLL_S)
            job = http.get(f"/jobs/{job['id']}")
        if job["state"] == "succeeded":
            shown.finish()
    return job


class _JobView:
    """A job's stages as they are polled: some may be over before they are seen."""

    def __init__(self, shown: ShownProgress) -> None:
        self._shown = shown
        self._stage: str | None = None
        self._seen = (0, "")  # units done, note

    def show(self, job: dict[str, Any]) -> None:
        if job["stage"] not in (None, self._stage):
            self._shown.finish()
            self._stage, self._seen = job["stage"], (0, "")
            self._shown.stage(job["stage"], job["total"] or 0)
        now = (job["done"] or 0, job["note"] or "")
        if self._stage is not None and now != self._seen:
            self._shown.advance(now[0] - self._seen[0], now[1])
            self._seen = now
