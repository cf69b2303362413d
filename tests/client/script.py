"""A scripted service that replaces the network."""

from typing import Any

import httpx2 as httpx

from tests.support.scripted_scores import SCORE

GOOD = httpx.Response(200, json=SCORE)
QUICK = {"retries": 2, "longest_wait_s": 0.01}
JOB = {
    "id": "job_1", "kind": "calibrate", "state": "queued", "created_at": "2026-01-01T00:00:00Z", "name": "",
    "stage": None, "done": 0, "total": 0, "eta_s": None, "note": "", "error": None, "calibration_id": None,
    "activated": None, "decision": None, "refused_rows": 0,
    "started_at": None, "finished_at": None, "links": {},
}  # fmt: skip


def problem(status: int, code: str, *, retryable: bool = True, **headers: str) -> httpx.Response:
    body = {"code": code, "detail": code, "retryable": retryable, "status": status, "title": "", "type": ""}
    return httpx.Response(status, json=body, headers=headers)


class Script:
    """Answers with the steps in order, responses or exceptions; the last one is repeated."""

    def __init__(self, *steps: httpx.Response | Exception) -> None:
        self.steps, self.seen = list(steps), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        step = self.steps[min(len(self.seen), len(self.steps)) - 1]
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, headers=step.headers, content=step.content)


def ok(content: bytes) -> httpx.Response:
    return httpx.Response(200, content=content)


def taken(items: Any, into: list[Any]) -> None:
    """Append items to a list, which keeps them if an error is raised."""
    for item in items:
        into.append(item)
