"""The application: builds the components that the settings ask for, and connects them."""

import logging
import os
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import FastAPI
from pydantic import BaseModel

from service import __version__
from service.admin import calibrations, health, jobs, keys
from service.admin.services import Services
from service.admin.uploads import UploadThreads
from service.calibration.calibration import (
    CALLER,
    Calibration,
    Fingerprint,
    service_fingerprint,
    with_embedder,
)
from service.calibration.files import UploadLimits
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, Comparer, compared_by
from service.console import routes as console
from service.embedding.port import Embedder
from service.errors import EmbedderUnavailable
from service.http.door import Door
from service.http.keys import Keys
from service.http.openapi import OpenApiApp, Problem
from service.http.problems import HANDLERS
from service.jobs.calibrator import (
    Calibrator,
    Checking,
    Comparing,
    Drawer,
    Embedding,
    LivePriority,
    RetryPolicy,
)
from service.jobs.knowing import GetToKnow
from service.jobs.model import (
    CalibrateForm,
    CalibrateRequest,
    Setup,
)
from service.jobs.runner import DurableJobs, JobSteps
from service.jobs.store import SqlJobs
from service.llm.ask import Asker
from service.llm.client import LLM
from service.llm.prompt import PLAIN, Message, Sampling, Template, shape_hash
from service.llm.queue import CallQueue
from service.proxy import routes as openai
from service.proxy.chat import Chat
from service.proxy.scores import AnswerScores
from service.report.pages import render
from service.scoring import routes as score
from service.scoring import verify
from service.scoring.claims import ClaimScorer
from service.scoring.metrics import Metrics
from service.scoring.score import Serving
from service.scoring.score_cache import MAX_SCORES, ScoreCache, ScoreStore
from service.scoring.scorer import LiveLoad, Scorer
from service.scoring.service import ScoringService
from service.scoring.telemetry import OtelEvents
from service.settings import Settings
from service.sharing import FairSemaphore, Threads, started_pool
from service.spectral.resampling import DEFAULT as DEFAULT_RESAMPLES
from service.spectral.resampling import Resamples
from service.store.database import Database, shown, store_url
from service.store.keys import SqlKeys

if TYPE_CHECKING:
    from service.jobs.engine import DbosEngine


# Builders of the components.

T = TypeVar("T")
log = logging.getLogger(__name__)
EMBEDDER_PARTS = frozenset(
    (
        "embedder",
        "embedder_revision",
        "embedder_precision",
        "embedder_dimension",
        "kernel",
        "comparer",
    )
)
# Smaller than the slots: callers that wait as long as an answer takes often disconnect before theirs.
MIN_LLM_QUEUE = 16
BLOCKING_THREADS = 6  # for asyncio.to_thread(): calls of DBOS, the reading of rows, fits
JOBS_SHARE = 1 / 8  # of the LLM's slots, for a calibration
OTEL_VARIABLES = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def build_llm(settings: Settings) -> LLM:
    """Return the client of the LLM server."""
    return LLM(
        settings.llm_url,
        model=settings.llm_model,
        api=settings.llm_api,
        api_key=settings.llm_api_key.get_secret_value(),
        timeout_s=settings.llm_timeout_s,
        # For draws and for the drop-in.
        queue=CallQueue(settings.llm_slots, max(MIN_LLM_QUEUE, settings.llm_slots // 4)),
    )


def build_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings ask for."""
    if settings.embedder_url:
        from service.embedding.http import HttpEmbedder

        return HttpEmbedder(
            settings.embedder_url,
            settings.embedder,
            api_key=settings.embedder_api_key.get_secret_value(),
            kernel=settings.kernel,
        )
    from service.embedding.local import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        settings.embedder,
        cache_dir=settings.data_dir / "weights",
        kernel=settings.kernel,
    )


def build_events() -> OtelEvents | None:
    """Return the sender of events to a collector; None if no variable names a collector."""
    if not any(os.environ.get(name) for name in OTEL_VARIABLES):
        return None
    try:
        return OtelEvents()
    except ImportError:
        # Not an error: the variables may be meant for other programs in the same environment.
        log.warning(
            "An OTEL_ variable names a collector, but nothing is sent, since OpenTelemetry is not installed "
            '(pip install "eigencal-service[otel]").'
        )
        return None


def serving_of(settings: Settings) -> Serving:
    """Return the defaults of requests. Raises ValueError for an invalid template."""
    sampling = Sampling(
        temperature=settings.sampling_temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=settings.default_max_tokens(messages=False),
        stop=tuple(settings.stop),
    )
    messages_sampling = replace(sampling, max_tokens=settings.default_max_tokens(messages=True), stop=())
    template = Template(settings.system_prompt, settings.prompt_template or PLAIN, settings.llm_api)
    return Serving(settings.num_samples, sampling, messages_sampling, template, settings.target_error)


def job_setup(settings: Settings, llm: LLM, serving: Serving) -> Setup:
    """Return the settings that jobs posted here are bound to. The LLM server is not asked.

    If no model is configured, the server chooses one; then a hash of the server's URL replaces the model.
    """
    identity = llm.identity(serving.request(prompt="?"))
    server = "" if identity.model else shape_hash(url=settings.llm_url)
    return Setup(
        {
            "embedder": settings.embedder,
            "kernel": settings.kernel,
            # Left out otherwise, as in jobs from before there was this setting.
            **({"compare": settings.compare} if settings.compare == "llm" else {}),
            "self_check": settings.self_check,
        },
        {
            **identity.parts(),
            "llm_url": server,
            "num_samples": serving.num_samples,
            **_parts_of("sampling", serving.sampling),
            **_parts_of("messages_sampling", serving.messages_sampling),
        },
    )


def _parts_of(name: str, sampling: Sampling) -> dict[str, Any]:
    parts = asdict(sampling) | {"stop": list(sampling.stop)}
    return {f"{name}.{part}": value for part, value in parts.items()}


def own_fingerprints(
    serving: Serving, llm: LLM, embedder: Embedder, compare: Compare = "embeddings"
) -> tuple[Fingerprint, ...]:
    """Return the fingerprints of prompts, conversations, and conversations with a system message.

    Empty until the identity of the embedder is known.
    """
    user = Message("user", "?")
    requests = (
        serving.request(prompt="?"),
        serving.request(messages=(user,)),
        serving.request(messages=(Message("system", "?"), user)),
    )
    try:
        made_by = embedder.identity
    except EmbedderUnavailable:
        return ()
    found = [service_fingerprint(llm.identity(request), request.sampling, made_by) for request in requests]
    if compare == "llm":
        found = [with_embedder(one, compared_by(made_by, one.model)) for one in found]
    return tuple(found)


def own_keys(
    serving: Serving, llm: LLM, embedder: Embedder, compare: Compare = "embeddings"
) -> tuple[str, ...]:
    """Return the fingerprint keys of prompts and of conversations without a system message."""
    return tuple(fingerprint.key() for fingerprint in own_fingerprints(serving, llm, embedder, compare)[:2])


# The store of one replica and its jobs.


@dataclass(frozen=True, slots=True)
class Intervals:
    """Polling intervals of a replica, in seconds.

    active_poll_s: for calibrations that peers activated. beat_s: for open jobs. lease_s: peers take over the
    jobs of a replica that has been silent this long.
    """

    active_poll_s: float = 1.0
    beat_s: float = 2.0
    lease_s: float = 10.0


DEFAULT_INTERVALS = Intervals()


@dataclass(slots=True)
class Replica:
    """The store of one replica and its share of the jobs. Components start in the order of dependence."""

    database: Database
    store: SqlJobs
    calibrations: SqlCalibrations
    jobs: DurableJobs
    kept: ScoreStore
    keys: SqlKeys
    _started: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)

    async def start(self) -> None:
        """Migrate the tables, load the active calibrations, resume interrupted jobs."""
        for component in (self.database, self.calibrations, self.jobs):
            self._started.push_async_callback(component.stop)
            await component.start()

    async def stop(self) -> None:
        """Stop the jobs, which resume at the next start, and close the store. Idempotent."""
        await self._started.aclose()


def build_replica(
    database_url: str,
    *,
    llm: LLM,
    embedder: Embedder,
    serving: Serving,
    setup: Setup,
    slots: int,
    live: LiveLoad,
    own_keys: Callable[[], tuple[str, ...]] = lambda: (),
    engine: "DbosEngine | None" = None,
    patience: RetryPolicy | None = None,
    intervals: Intervals = DEFAULT_INTERVALS,
    compare: Compare = "embeddings",
    self_check: bool = True,
    resamples: Resamples = DEFAULT_RESAMPLES,
) -> Replica:
    """Return the store and the jobs of one replica, not started.

    A job draws with `slots` concurrent requests, after `live` scores. `own_keys` returns the keys of the
    fingerprints of the present set-up; `setup`: its settings.
    `compare`, `self_check`: how answers are compared, and whether the LLM checks them, where a job does not
    say.
    `engine`: None for DBOS, with its tables next to the store. Raises ValueError for a URL that is neither
    SQLite nor Postgres.
    """
    database = Database(database_url)
    calibrations = SqlCalibrations(database, poll_s=intervals.active_poll_s, own_keys=own_keys)
    store = SqlJobs(database, calibrations, setup=setup)

    # Each has its own turns: a draw uses the LLM, and embedding does not wait for the LLM.
    patience = patience or RetryPolicy()
    waiting = partial(LivePriority, live)
    drawer = Drawer(
        llm,
        embedder,
        store,
        serving,
        live_priority=waiting(),
        patience=patience,
        wait_s=intervals.beat_s,
    )
    embedding = Embedding(embedder, store, live_priority=waiting(), patience=patience)

    asker = Asker(llm, slots)
    comparing = Comparing(
        Comparer(asker),
        store,
        live_priority=waiting(),
        patience=patience,
        wait_s=intervals.beat_s,
    )

    checking = Checking(
        asker,
        store,
        by_default=self_check,
        live_priority=waiting(),
        patience=patience,
        wait_s=intervals.beat_s,
    )
    calibrator = Calibrator(
        store,
        calibrations,
        drawer,
        embedding,
        comparing,
        checking,
        compare=compare,
        resamples=resamples,
    )

    steps = JobSteps(
        store,
        drawer,
        calibrator.finish,
        slots=slots,
        wait_s=intervals.beat_s,
    )
    jobs = DurableJobs(
        store,
        steps,
        engine or dbos_engine(database, setup, intervals),
        beat_s=intervals.beat_s,
    )
    return Replica(
        database, store, calibrations, jobs, ScoreStore(database, max_documents=MAX_SCORES), SqlKeys(database)
    )


def dbos_engine(database: Database, setup: Setup, intervals: Intervals) -> "DbosEngine":
    """Return the engine for jobs of this set-up."""
    from service.jobs.engine import DbosEngine  # imports DBOS, which most tests do not need
    from service.jobs.presence import Presence

    is_shared = database.url.get_backend_name() == "postgresql"
    presence = Presence(database, lease_s=intervals.lease_s) if is_shared else None
    return DbosEngine(database.url, setup_keys=setup.keys(), presence=presence)


def about(settings: Settings, serving: Serving, llm: LLM, embedder: Embedder) -> Iterator[str]:
    """Yield the set-up of the service as lines for the log, without keys, passwords and user names."""
    yield f"Eigencal {__version__}"
    yield f"store: {shown(store_url(settings.resolved_database_url()))}"
    model = llm.identity(serving.request(prompt="?")).model or "unknown so far"
    parts = urlsplit(settings.llm_url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    yield f"LLM: {place} (API for prompts: {settings.llm_api}), model {model}"
    yield (
        f"answers: {serving.num_samples}, of at most {serving.sampling.max_tokens} tokens to a prompt, "
        f"{serving.messages_sampling.max_tokens} to a conversation"
    )
    try:
        identity = embedder.identity
    except EmbedderUnavailable:
        yield f"embedder: {settings.embedder}, which does not answer yet"
        return
    device = getattr(embedder, "device", "")  # of an embedder in this process
    yield (
        f"embedder: {identity.name}, revision {identity.revision or 'unknown'}, "
        f"{identity.dimension} dimensions, {identity.precision}{f', on {device}' if device else ''}"
    )


# Uploads, which have two forms each, and the body of errors. FastAPI does not find them in the routes.
MORE_MODELS: list[type[BaseModel]] = [CalibrateRequest, CalibrateForm, Problem]

DESCRIPTION = """\
Scores how uncertain an LLM is about a prompt. The service draws answers, embeds them, and returns the
calibrated largest eigenvalue (`lambda_max`, confidence) and von Neumann entropy (uncertainty) of their
density matrix. The confidence measures the share of meaning on which the answers agree, not the probability
that the answer is right.
"""


def create_app(
    settings: Settings,
    *,
    llm: LLM | None = None,
    embedder: Embedder | None = None,
    store: Replica | None = None,
    events: OtelEvents | None = None,
    resamples: Resamples = DEFAULT_RESAMPLES,
) -> FastAPI:
    """Return the application. The given components replace those that the settings ask for.

    resamples: numbers of resamples for the intervals of reports. Nothing is loaded before the lifespan
    starts. Raises ValueError for contradictory settings.
    """
    llm = llm or build_llm(settings)
    queue = llm.queue
    embedder = embedder or build_embedder(settings)
    serving, live = serving_of(settings), LiveLoad()

    def own() -> list[Fingerprint]:
        ways: tuple[Compare, ...] = ("embeddings", "llm")  # requests may ask for either
        return [print_ for way in ways for print_ in own_fingerprints(serving, llm, embedder, way)]

    if store is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        store = build_replica(
            settings.resolved_database_url(),
            llm=llm,
            embedder=embedder,
            serving=serving,
            setup=job_setup(settings, llm, serving),
            slots=max(1, int(settings.llm_slots * JOBS_SHARE)),
            live=live,
            own_keys=partial(own_keys, serving, llm, embedder, settings.compare),
            compare=settings.compare,
            self_check=settings.self_check,
            resamples=resamples,
        )
    kept = ScoreCache(store.kept, keep_s=settings.score_ttl_s)
    api_keys = Keys(
        store.keys,
        admin=settings.admin_key.get_secret_value(),
        score=settings.score_key.get_secret_value(),
        host=None if settings.allow_open else settings.host,
    )
    events = events or build_events()

    def in_force() -> list[Calibration]:
        keys_now = {fingerprint.key() for fingerprint in own()}
        return [
            calibration
            for calibration in store.calibrations.any_active()
            if calibration.fingerprint.key() in keys_now
        ]

    def applies_now(fingerprint: Fingerprint) -> bool:
        if fingerprint.source == CALLER:  # callers drew the answers, so only the embedder is the service's
            return any(EMBEDDER_PARTS.isdisjoint(fingerprint.differs(current)) for current in own())
        return fingerprint.key() in {current.key() for current in own()}

    metrics = Metrics(
        events,
        in_force=in_force,
        activations=store.calibrations.num_activations,
        gauges={
            ("eigencal_llm_calls_in_flight", "LLM calls in flight for chats, scores and jobs."): (
                lambda: queue.num_running
            ),
            ("eigencal_llm_calls_waiting", "LLM calls that wait for a slot."): lambda: queue.num_waiting,
            ("eigencal_embedder_queued", "Batches of texts that are being embedded or wait for it."): (
                lambda: getattr(embedder, "num_queued", 0)
            ),
        },
        llm_failures=llm.failures,
    )
    uploads = UploadThreads()
    max_requests = queue.slots + queue.max_waiting
    threads = Threads("scores")
    scorer = Scorer(
        llm,
        embedder,
        store.calibrations,
        live=live,
        compare=settings.compare,
        self_check=settings.self_check,
        claims=ClaimScorer(settings.claims_from_characters, threads=threads),
        threads=threads,
    )
    batch_items = FairSemaphore(max(1, max_requests // 2))
    service = ScoringService(scorer, serving, kept, batch_items, metrics)
    chat = Chat(
        llm=llm,
        service=service,
        scores=AnswerScores(service),
        mode=settings.chat_mode,
        deadline_s=settings.chat_deadline_s,
        num_samples=settings.chat_num_samples,
        abstain=settings.abstain,
        abstain_text=settings.abstain_text,
    )
    parts = [metrics, threads, uploads, embedder, llm, store, api_keys, kept, chat.scores]
    if settings.get_to_know:
        asked = partial(own_fingerprints, serving, llm, embedder, settings.compare)
        parts.append(GetToKnow(store.jobs, store.calibrations, llm, serving, asked, scorer.choice))
    if events is not None:
        parts.insert(0, events)
    app = OpenApiApp(
        title="Eigencal",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan(parts, partial(about, settings, serving, llm, embedder)),
        docs_url=None,  # FastAPI's pages fetch their scripts from other hosts; ours is in `admin.health`
        redoc_url=None,
        exception_handlers=HANDLERS,
    )
    app.state.scoring = service
    app.state.admin = Services(
        serving=serving,
        jobs=store.jobs,
        calibrations=store.calibrations,
        checks={"store": store.database.ready, "embedder": embedder.check, "llm": llm.check},
        metrics=metrics,
        limits=UploadLimits(num_samples=settings.num_samples),
        threads=uploads,
        computing=threads,
        report_page=render,
        applies_now=applies_now,
        unreadable=store.database.unreadable_rows,
    )
    app.state.chat = chat
    app.state.keys = api_keys
    app.more_models = [*MORE_MODELS]
    for routes in (score, openai, verify, jobs, calibrations, keys, health):
        app.include_router(routes.router)
    app.include_router(console.router)
    app.mount("/console", console.files())
    app.add_middleware(
        Door, max_requests=max_requests, max_batches=queue.max_waiting, registry=metrics.registry
    )
    return app


def _lifespan(components: Sequence[Any], about: Callable[[], Iterable[str]]) -> Callable[[FastAPI], Any]:
    """Start the components in the given order, log the lines of `about`, stop them in reverse order.

    The store starts after the embedder and the LLM, since interrupted jobs resume with the store and need
    both. Components that write to the store start after it, so that they can write until they have stopped.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        get_running_loop().set_default_executor(started_pool("blocking", BLOCKING_THREADS))
        async with AsyncExitStack() as stack:
            for component in components:
                # Before the start, so that a component that fails in its start is stopped, too.
                stack.push_async_callback(component.stop)
                if hasattr(component, "start"):
                    await component.start()
            for line in about():
                log.info("%s", line)
            yield

    return lifespan
