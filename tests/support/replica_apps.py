"""Whole applications in this process, several on one database: replicas, but for what dies with a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx

from service.app import Intervals, build_replica, create_app, own_keys, serving_of
from service.calibration.calibration import Calibration, service_fingerprint
from service.embedding.port import Embedder
from service.jobs.calibrator import Patience
from service.jobs.model import Setup
from service.llm.port import LanguageModel, Message
from service.scoring.score import Serving
from service.scoring.scorer import LiveLoad
from service.scoring.telemetry import OtelEvents
from service.settings import Settings
from service.tracing import OtelSpans
from tests.support.calibrations import add, calibration
from tests.support.decisions import selector
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.task_engine import TaskEngine

ORTHOGONAL = 8  # dimensions
INTERVALS = Intervals(active_poll_s=0.1, beat_s=0.1, lease_s=1.0, watch_s=0.05)


def orthogonal() -> FakeEmbedder:
    """Answers that have nothing in common, so that every figure is round."""
    names = ("Paris", "Lyon", "Nice")
    return FakeEmbedder(
        ORTHOGONAL, vectors={name: [float(i == k) for i in range(ORTHOGONAL)] for k, name in enumerate(names)}
    )


def deciding(serving: Serving, llm: LanguageModel, embedder: FakeEmbedder) -> list[Calibration]:
    """Return a calibration for prompts and one for conversations, as this service draws them.

    P(correct) of a text is half its share of the answers plus half of 1 in d; from 0.5 on it keeps an error
    of 0.18.
    """
    requests = [serving.request(prompt="?"), serving.request(messages=(Message("user", "?"),))]
    every = {m: selector() for m in range(2, 6)}
    prints = [service_fingerprint(llm.identity(r), r.sampling, embedder.identity) for r in requests]
    return [replace(calibration(), fingerprint=one, selectors=every) for one in prints]


@asynccontextmanager
async def replica_app(
    folder: Path,
    name: str = "one",
    *,
    llm: LanguageModel | None = None,
    embedder: Embedder | None = None,
    intervals: Intervals = INTERVALS,
    decides: bool = False,
    events: OtelEvents | None = None,
    spans: OtelSpans | None = None,
    patience: Patience | None = None,
    **settings: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application whose store is the file in this folder, and yield a client of it.

    Its jobs run without DBOS, of which there can be one in a process. `decides`: calibrations are active that
    tell P(correct) for 2 to 5 answers to prompts and to conversations (see `deciding`).
    """
    asked = Settings(data_dir=folder, **settings)
    llm, embedder = llm or FakeLLM(), embedder or FakeEmbedder()
    store = build_replica(
        asked.resolved_database_url(),
        llm=llm,
        embedder=embedder,
        serving=serving_of(asked),
        setup=Setup(),
        slots=1,
        live=LiveLoad(),
        own_keys=lambda: own_keys(serving_of(asked), llm, embedder),
        engine=TaskEngine(),
        patience=patience,
        intervals=intervals,
    )
    app = create_app(asked, llm=llm, embedder=embedder, store=store, events=events, spans=spans)
    async with app.router.lifespan_context(app):
        for one in deciding(serving_of(asked), llm, embedder) if decides else ():
            await add(store.calibrations, one, {})
            await store.calibrations.activate(one.id)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield http
