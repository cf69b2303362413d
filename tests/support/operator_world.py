"""The operator's routes on a store in a file, and requests to them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
from fastapi import FastAPI

from service.admin import calibrations, jobs
from service.admin.services import Services
from service.calibration.files import UploadLimits
from service.http.door import Door
from service.http.keys import Keys
from service.http.problems import HANDLERS
from service.jobs.model import JobOptions
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from tests.support.following import followed
from tests.support.keys import MemoryKeys
from tests.support.sqlite_store import SqliteStore

OPTIONS = JobOptions()
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
NO_JOB = "job_" + "0" * 26
NO_CALIBRATION = "cal_" + "0" * 26


class World:
    """An application with its own store, to be started by the test."""

    def __init__(self, **limits: int) -> None:
        self.store = SqliteStore()
        self.jobs, self.calibrations = self.store.jobs, self.store.calibrations
        self.app = FastAPI(title="t", version="0", exception_handlers=HANDLERS)
        self.app.state.keys = Keys(MemoryKeys())
        self.app.state.admin = Services(
            Serving(10, Sampling(), Sampling()),
            self.jobs,
            self.calibrations,
            limits=UploadLimits(**limits),
            report_page=lambda report: f"<html>{report['version']}</html>",
        )
        self.app.include_router(jobs.router)
        self.app.include_router(calibrations.router)
        self.app.add_middleware(Door, max_requests=8, max_batches=8)

    @asynccontextmanager
    async def client(
        self, peer: str = "127.0.0.1", host: str = "127.0.0.1", **options: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=(peer, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", **options) as client:
            yield client


def examples(count: int = 40, **more: Any) -> list[dict[str, Any]]:
    return [{"id": i, "prompt": f"Q{i}?", "reference": "yes", **more} for i in range(count)]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def upload(data: bytes, name: str = "dev.jsonl") -> dict[str, Any]:
    return {"file": (name, data)}


async def ended(http: httpx.AsyncClient, posted: httpx.Response) -> dict[str, Any]:
    """Wait until the submitted job has ended, and return it."""
    assert posted.status_code == 202, posted.text
    return await followed(http, posted.json()["id"])


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    return body
