"""Several whole applications on one database in this process, as replicas that cannot be killed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx

from service.app import Intervals, build_replica, create_app, own_keys, serving_of
from service.calibration.calibration import Calibration, service_fingerprint
from service.embedding.port import Embedder
from service.jobs.calibrator import RetryPolicy
from service.jobs.model import Setup
from service.llm.client import LLM
from service.llm.prompt import Message
from service.scoring.score import Serving
from service.scoring.scorer import LiveLoad
from service.scoring.telemetry import OtelEvents
from service.settings import Settings
from tests.support.calibrations import add, calibration
from tests.support.decisions import selector
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.task_engine import TaskEngine

ORTHOGONAL = 8  # dimensions
INTERVALS = Intervals(active_poll_s=0.1, beat_s=0.1, lease_s=1.0)


def orthogonal() -> FakeEmbedder:
    """Return an embedder with orthogonal answers, so that all figures are round numbers."""
    names = ("Paris", "Lyon", "Nice")
    return FakeEmbedder(
        ORTHOGONAL, vectors={name: [float(i == k) for i in range(ORTHOGONAL)] for k, name in enumerate(names)}
    )


def deciding(serving: Serving, llm: FakeLLM | LLM, embedder: FakeEmbedder) -> list[Calibration]:
    """Return calibrations for prompts and for conversations of this service's set-up.

    P(correct) of a text is half its share of the answers plus half of 1 in d; from 0.5 on it promises an
    error of 0.18.
    """
    requests = [serving.request(prompt="?"), serving.request(messages=(Message("user", "?"),))]
    selectors = {m: selector() for m in range(2, 6)}
    prints = [service_fingerprint(llm.identity(r), r.sampling, embedder.identity) for r in requests]
    return [replace(calibration(), fingerprint=fingerprint, selectors=selectors) for fingerprint in prints]


@asynccontextmanager
async def replica_app(
    folder: Path,
    name: str = "one",
    *,
    llm: FakeLLM | LLM | None = None,
    embedder: Embedder | None = None,
    intervals: Intervals = INTERVALS,
    decides: bool = False,
    events: OtelEvents | None = None,
    patience: RetryPolicy | None = None,
    **settings: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application with the store in this folder, and yield an HTTP client for it.

    Its jobs run without DBOS, because a process can have only one. `decides`: activate calibrations that give
    P(correct) for 2 to 5 answers to prompts and to conversations (see `deciding`).
    """
    settings_ = Settings(data_dir=folder, **settings)
    llm, embedder = llm or FakeLLM(), embedder or FakeEmbedder()
    store = build_replica(
        settings_.resolved_database_url(),
        llm=llm,
        embedder=embedder,
        serving=serving_of(settings_),
        setup=Setup(),
        slots=1,
        live=LiveLoad(),
        own_keys=lambda: own_keys(serving_of(settings_), llm, embedder),
        self_check=settings_.self_check,
        engine=TaskEngine(),
        patience=patience,
        intervals=intervals,
    )
    app = create_app(settings_, llm=llm, embedder=embedder, store=store, events=events)
    async with app.router.lifespan_context(app):
        for calibration_ in deciding(serving_of(settings_), llm, embedder) if decides else ():
            await add(store.calibrations, calibration_, {})
            await store.calibrations.activate(calibration_.id)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield http
