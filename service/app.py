"""The application: every part that the settings ask for, built and put together here alone."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import FastAPI
from pydantic import BaseModel

from service import __version__
from service.api import health
from service.api import key_routes as keys
from service.api.auth import Keys
from service.api.deps import Admission, Metrics, Services
from service.api.errors import install
from service.api.key_routes import KeyRequest
from service.api.middleware import AnswerLimit, BodyLimit, PlainStart, RequestContext
from service.api.openapi import Described, Problem
from service.calibration import routes as calibrations
from service.calibration.calibration import (
    CALLER,
    Calibration,
    Fingerprint,
    service_fingerprint,
    with_embedder,
)
from service.calibration.default import packaged
from service.calibration.files import UploadLimits
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, Comparer, compared_by
from service.embedding.port import Embedder
from service.errors import EigencalError, EmbedderUnavailable
from service.gateways import guardrail, verify
from service.gateways.guardrail import Guardrail, GuardrailCall
from service.gateways.verify import VerifyRequest
from service.jobs import evaluations
from service.jobs import routes as jobs
from service.jobs.calibrator import Calibrator, Comparing, Drawer, Embedding, LiveFirst, Patience
from service.jobs.model import (
    CalibrateForm,
    CalibrateRequest,
    CorrectionsRequest,
    EvaluateForm,
    EvaluateRequest,
    Setup,
)
from service.jobs.runner import DurableJobs, JobSteps
from service.jobs.store import RunningJob, SqlJobs
from service.llm.admission import AdmissionQueue
from service.llm.port import FEW_SHOT, LanguageModel, Message, PromptShape, Sampling, shape_hash
from service.llm.weights import WeightsError
from service.proxy import routes as openai
from service.proxy.chat_score import ChatScorer
from service.proxy.routes import Chat, reporter
from service.proxy.upstream import SILENCE_S, HttpUpstream, Upstream
from service.report.pages import render
from service.scoring import routes as score
from service.scoring.claims import ClaimScorer
from service.scoring.routes import BatchRequest, ScoreRequest
from service.scoring.score import Serving
from service.scoring.score_cache import MAX_SCORES, ScoreCache, SqlKept
from service.scoring.scorer import LiveLoad, Scorer
from service.scoring.telemetry import NO_SPANS, OtelEvents, OtelSpans
from service.settings import Settings
from service.sharing import Threads
from service.spectral.resampling import DEFAULT as DEFAULT_RESAMPLES
from service.spectral.resampling import Resamples
from service.store.database import Database, shown, store_url
from service.store.keys import SqlKeys

if TYPE_CHECKING:
    from service.jobs.engine import DbosEngine


def build_upstream(settings: Settings, llm: LanguageModel, serving: Serving) -> Upstream:
    """Return what takes the calls of /v1 as they are: the LLM server, or the model in this process."""
    if settings.llm_backend == "embedded":
        from service.proxy.embedded import ModelUpstream

        return ModelUpstream(
            llm, lambda api: serving.messages_sampling if api == "chat" else serving.sampling
        )
    return HttpUpstream(
        settings.llm_url,
        api_key=settings.llm_api_key.get_secret_value(),
        silence_s=max(settings.llm_timeout_s, SILENCE_S),
        proxies_from_env=settings.proxies_from_env,
    )


# The components that the settings ask for, each built in one place.

T = TypeVar("T")
log = logging.getLogger(__name__)
EMBEDDER_PARTS = frozenset(
    (
        "embedder",
        "embedder_revision",
        "embedder_precision",
        "embedder_dimension",
        "empty_answers",
        "kernel",
        "comparer",
    )
)
# Few beside the slots: who waits as long as an answer takes has often gone before his own is there.
MIN_LLM_QUEUE = 16
COMPARERS_SHARE = 8  # one in so many of the slots is for the comparisons of live scores
JOBS_SHARE = 8  # of the slots a calibration has one in so many, on all replicas together
OTEL_VARIABLES = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_TRACES_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def prompt_shape(settings: Settings) -> PromptShape:
    """Return what is put around a prompt. Raises ValueError for a bad template or regex."""
    embedded = settings.llm_backend == "embedded"
    return PromptShape(
        settings.system_prompt,
        settings.few_shot or (FEW_SHOT if embedded else ""),
        settings.prompt_template,
        settings.answer_regex,
    )


def build_llm(settings: Settings, queue: AdmissionQueue | None = None) -> LanguageModel:
    """Return the LLM adapter that the settings ask for. Raises ValueError for a bad template or regex."""
    shape = prompt_shape(settings)
    if settings.llm_backend == "embedded":
        # Imported only where needed, as the others below: torch and transformers take seconds.
        from service.llm.embedded import EmbeddedLanguageModel

        return EmbeddedLanguageModel(settings.data_dir / "weights", shape=shape)
    from service.llm.openai_server import HttpLanguageModel

    return HttpLanguageModel(
        settings.llm_url,
        model=settings.llm_model,
        api=settings.llm_api,
        api_key=settings.llm_api_key.get_secret_value(),
        shape=shape,
        timeout_s=settings.llm_timeout_s,
        queue=queue or llm_queue(settings),
        use_priority=settings.llm_priority,
        proxies_from_env=settings.proxies_from_env,
    )


def build_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings ask for."""
    if settings.embedder_url:
        from service.embedding.http import HttpEmbedder

        return HttpEmbedder(
            settings.embedder_url,
            settings.embedder,
            api_key=settings.embedder_api_key.get_secret_value(),
            empty_answers=settings.empty_answers,
            kernel=settings.kernel,
            proxies_from_env=settings.proxies_from_env,
        )
    from service.embedding.local import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        settings.embedder,
        cache_dir=settings.data_dir / "weights",
        empty_answers=settings.empty_answers,
        kernel=settings.kernel,
    )


def build_events() -> OtelEvents | None:
    """Return what sends a collector an event per score; None where no standard variable names one."""
    return _sending(OtelEvents, OTEL_VARIABLES)


def build_spans() -> OtelSpans | None:
    """Return what sends a collector spans; None where no standard variable names one."""
    return _sending(OtelSpans, OTEL_TRACES_VARIABLES)


def _sending(make: Callable[[], T], variables: Sequence[str]) -> T | None:
    if not any(os.environ.get(name) for name in variables):
        return None
    try:
        return make()
    except ImportError:
        # The variables may be meant for others in the same environment.
        log.warning(
            "Nothing is sent, though an OTEL_ variable names a collector: OpenTelemetry is not installed "
            '(pip install "eigencal-service[otel]").'
        )
        return None


def serving_of(settings: Settings) -> Serving:
    """Return what a request that says nothing gets."""
    sampling = Sampling(
        temperature=settings.sampling_temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=settings.default_max_tokens(messages=False),
        stop=settings.default_stop(messages=False),
    )
    messages_sampling = replace(
        sampling,
        max_tokens=settings.default_max_tokens(messages=True),
        stop=settings.default_stop(messages=True),
    )
    return Serving(settings.num_samples, sampling, messages_sampling, target_error=settings.target_error)


def job_setup(settings: Settings, llm: LanguageModel, serving: Serving) -> Setup:
    """Return what jobs posted here are bound to, before anything is learnt from the LLM server.

    Where no model is configured, the server decides which it is: then its address stands for it.
    """
    asked = llm.identity(serving.request(prompt="?"))
    server = "" if asked.model else shape_hash(url=settings.llm_url)
    return Setup(
        {
            "embedder": settings.embedder,
            "empty_answers": settings.empty_answers,
            "kernel": settings.kernel,
            # As in jobs posted before there was another way.
            **({"compare": settings.compare} if settings.compare == "llm" else {}),
        },
        {
            **asked.parts(),
            "llm_url": server,
            "num_samples": serving.num_samples,
            **_parts_of("sampling", serving.sampling),
            **_parts_of("messages_sampling", serving.messages_sampling),
        },
    )


def _parts_of(name: str, sampling: Sampling) -> dict[str, Any]:
    parts = asdict(sampling) | {"stop": list(sampling.stop)}
    return {f"{name}.{part}": value for part, value in parts.items()}


def llm_slots(settings: Settings) -> int:
    """Return how many requests the LLM takes at once; the embedded one works on one at a time."""
    return settings.llm_slots if settings.llm_backend == "vllm" else 1


def llm_queue(settings: Settings) -> AdmissionQueue:
    """Return the queue before the LLM, for draws and for the calls of the drop-in."""
    slots = llm_slots(settings)
    return AdmissionQueue(slots, max(MIN_LLM_QUEUE, slots // 4))


def own_fingerprints(
    serving: Serving, llm: LanguageModel, embedder: Embedder, compare: Compare = "embeddings"
) -> tuple[Fingerprint, ...]:
    """Return those of prompts, conversations, and these with a system message; none before the embedder's."""
    user = Message("user", "?")
    asked = (
        serving.request(prompt="?"),
        serving.request(messages=(user,)),
        serving.request(messages=(Message("system", "?"), user)),
    )
    try:
        made_by = embedder.identity
    except EmbedderUnavailable:
        return ()
    found = [service_fingerprint(llm.identity(one), one.sampling, made_by) for one in asked]
    if compare == "llm":
        found = [with_embedder(one, compared_by(made_by, one.model)) for one in found]
    return tuple(found)


def own_keys(
    serving: Serving, llm: LanguageModel, embedder: Embedder, compare: Compare = "embeddings"
) -> tuple[str, ...]:
    """Return the fingerprint keys of prompts, and of conversations without a system message of their own."""
    return tuple(one.key() for one in own_fingerprints(serving, llm, embedder, compare)[:2])


# The store of one replica and its jobs: every object that they are made of, and what it is given.


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often a replica looks at the store, in seconds.

    active_poll_s: for calibrations that peers activated. beat_s: for open jobs. lease_s: silence after which
    peers take over the jobs of a replica. watch_s: for the progress of jobs that callers watch.
    """

    active_poll_s: float = 1.0
    beat_s: float = 2.0
    lease_s: float = 10.0
    watch_s: float = 0.3


DEFAULT_INTERVALS = Intervals()


@dataclass(slots=True)
class Replica:
    """The store of one replica and its share of the jobs, started as they need each other."""

    database: Database
    store: SqlJobs
    calibrations: SqlCalibrations
    jobs: DurableJobs
    kept: SqlKept
    keys: SqlKeys
    _started: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)

    async def start(self) -> None:
        """Bring the schema up to date, learn what is active, take up the jobs that were left."""
        for component in (self.database, self.calibrations, self.kept, self.jobs):
            self._started.push_async_callback(component.stop)
            await component.start()

    async def stop(self) -> None:
        """Stop the jobs, which go on at the next start, and close the store; idempotent."""
        await self._started.aclose()


def build_replica(
    database_url: str,
    *,
    llm: LanguageModel,
    embedder: Embedder,
    serving: Serving,
    setup: Setup,
    slots: int,
    live: LiveLoad,
    own_keys: Callable[[], tuple[str, ...]] = lambda: (),
    engine: "DbosEngine | None" = None,
    patience: Patience | None = None,
    intervals: Intervals = DEFAULT_INTERVALS,
    compare: Compare = "embeddings",
    resamples: Resamples = DEFAULT_RESAMPLES,
) -> Replica:
    """Return the store and the jobs of one replica, not started.

    Jobs draw with `slots` requests at once, on all replicas together, and give way to the `live` scores.
    `own_keys` returns the keys of the fingerprints of the present set-up, whose settings are `setup`.
    `compare`: by what answers are compared where a job does not say.
    `engine` None: DBOS, beside the store. Raises ValueError for a URL that is neither SQLite nor Postgres.
    """
    database = Database(database_url)
    calibrations = SqlCalibrations(database, poll_s=intervals.active_poll_s, own_keys=own_keys)
    store = SqlJobs(database, calibrations, setup=setup)

    # Each has turns of its own: a draw takes the LLM, which embedding need not wait for.
    patience = patience or Patience()
    waiting = partial(LiveFirst, live)
    drawer = Drawer(
        llm,
        embedder,
        store,
        serving,
        live_first=waiting(),
        patience=patience,
        wait_s=intervals.beat_s,
    )
    embedding = Embedding(embedder, store, live_first=waiting(), patience=patience)

    comparing = Comparing(
        Comparer(llm, slots), store, live_first=waiting(), patience=patience, wait_s=intervals.beat_s
    )

    calibrator = Calibrator(
        store, calibrations, drawer, embedding, comparing, compare=compare, resamples=resamples
    )

    async def evaluate(job: RunningJob) -> None:
        from service.evaluation.evaluator import Evaluator  # serving never needs it

        evaluator = Evaluator(store, embedder, embedding, version=__version__, resamples=resamples)
        await evaluator.finish(job)

    steps = JobSteps(
        store,
        drawer,
        {"calibrate": calibrator.finish, "evaluate": evaluate},
        slots=slots,
        wait_s=intervals.beat_s,
    )
    jobs = DurableJobs(
        store,
        steps,
        engine or dbos_engine(database, setup, intervals),
        beat_s=intervals.beat_s,
        poll_s=intervals.watch_s,
    )
    return Replica(
        database, store, calibrations, jobs, SqlKept(database, max_documents=MAX_SCORES), SqlKeys(database)
    )


def dbos_engine(database: Database, setup: Setup, intervals: Intervals) -> "DbosEngine":
    """Return the engine for jobs of this set-up."""
    from service.jobs.engine import DbosEngine  # imports DBOS, which tests of other parts do not need
    from service.jobs.presence import Presence

    is_shared = database.url.get_backend_name() == "postgresql"
    presence = Presence(database, lease_s=intervals.lease_s) if is_shared else None
    return DbosEngine(database.url, setup_keys=setup.keys(), presence=presence)


def about(settings: Settings, serving: Serving, llm: LanguageModel, embedder: Embedder) -> Iterator[str]:
    """Yield how the service is set up, for the log of its start: no key, no password, no name of a user."""
    yield f"Eigencal {__version__}"
    yield f"store: {shown(store_url(settings.resolved_database_url()))}"
    model = llm.identity(serving.request(prompt="?")).model or "not told yet"
    parts = urlsplit(settings.llm_url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    server = f"{place} (API for prompts: {settings.llm_api})"
    yield f"LLM: {'embedded' if settings.llm_backend == 'embedded' else server}, model {model}"
    yield (
        f"answers: {serving.num_samples}, of at most {serving.sampling.max_tokens} tokens to a prompt, "
        f"{serving.messages_sampling.max_tokens} to a conversation"
    )
    try:
        found = embedder.identity
    except EmbedderUnavailable:
        yield f"embedder: {settings.embedder}, which does not answer yet"
        return
    device = getattr(embedder, "device", "")  # of one in this process
    yield (
        f"embedder: {found.name}, revision {found.revision or 'unknown'}, {found.dimension} dimensions, "
        f"{found.precision}{f', on {device}' if device else ''}"
    )


# What is counted and traced: the paths that score, by kind.
KINDS: Mapping[str, str] = {
    "/score": "score",
    "/score/batch": "batch",
    "/v1/chat/completions": "chat",
    "/v1/completions": "chat",
    "/verify": "gateway",
    guardrail.PATH: "gateway",
}

# Bodies that routes read themselves, and the error that all of them send: FastAPI cannot know of them.
BODIES: list[type[BaseModel]] = [
    ScoreRequest,
    BatchRequest,
    CalibrateRequest,
    CalibrateForm,
    EvaluateRequest,
    EvaluateForm,
    VerifyRequest,
    GuardrailCall,
    KeyRequest,
    CorrectionsRequest,
    Problem,
]

DESCRIPTION = """\
Scores how uncertain an LLM is about a prompt: draws answers, embeds them, and returns the calibrated largest
eigenvalue (`lambda_max`, confidence) and von Neumann entropy (uncertainty) of their density matrix. The
confidence is how much of their meaning the answers share, not the probability that the answer is right.
"""


def create_app(
    settings: Settings,
    *,
    llm: LanguageModel | None = None,
    embedder: Embedder | None = None,
    store: Replica | None = None,
    events: OtelEvents | None = None,
    spans: OtelSpans | None = None,
    resamples: Resamples = DEFAULT_RESAMPLES,
) -> FastAPI:
    """Return the application. Components given here stand in for those that the settings ask for.

    resamples: how many stand behind the intervals of reports. Nothing is loaded before the lifespan starts.
    Raises ValueError for settings that contradict themselves.
    """
    queue = llm_queue(settings)
    llm = llm or build_llm(settings, queue)
    embedder = embedder or build_embedder(settings)
    serving, live = serving_of(settings), LiveLoad()

    def own() -> list[Fingerprint]:
        ways: tuple[Compare, ...] = ("embeddings", "llm")  # requests may ask for either
        return [one for way in ways for one in own_fingerprints(serving, llm, embedder, way)]

    if store is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        store = build_replica(
            settings.resolved_database_url(),
            llm=llm,
            embedder=embedder,
            serving=serving,
            setup=job_setup(settings, llm, serving),
            slots=max(1, llm_slots(settings) // JOBS_SHARE),
            live=live,
            own_keys=partial(own_keys, serving, llm, embedder, settings.compare),
            compare=settings.compare,
            resamples=resamples,
        )
    kept = ScoreCache(store.kept, keep_s=settings.score_ttl_s)
    api_keys = Keys(
        store.keys,
        admin=settings.admin_key.get_secret_value(),
        score=settings.score_key.get_secret_value(),
        host=None if settings.allow_open else settings.host,
    )
    events, spans = events or build_events(), spans or build_spans()

    def in_force() -> list[Calibration]:
        ours = {one.key() for one in own()}
        return [one for one in store.calibrations.any_active() if one.fingerprint.key() in ours]

    def applies_now(fingerprint: Fingerprint) -> bool:
        if fingerprint.source == CALLER:  # of answers that callers drew, the embedder alone is ours
            return any(EMBEDDER_PARTS.isdisjoint(fingerprint.differs(one)) for one in own())
        return fingerprint.key() in {one.key() for one in own()}

    metrics = Metrics(
        events,
        in_force=in_force,
        activations=store.calibrations.num_activations,
        gauges={
            ("eigencal_llm_calls_in_flight", "Calls of chats, scores and jobs to the LLM."): (
                lambda: queue.num_running
            ),
            ("eigencal_llm_calls_waiting", "Calls that wait for the LLM."): lambda: queue.num_waiting,
            ("eigencal_embedder_queued", "Batches of texts that are embedded, or wait for that."): (
                lambda: getattr(embedder, "num_queued", 0)
            ),
        },
        llm_failures=getattr(llm, "failures", {}),  # the LLM in this process has no calls that fail
    )
    admission = Admission(queue.slots + queue.max_waiting, queue.max_waiting, metrics.registry)
    threads = Threads("scores")
    scorer = Scorer(
        llm,
        embedder,
        store.calibrations,
        live=live,
        ood_abstain=settings.ood_abstain,
        compare=settings.compare,
        comparer=Comparer(llm, max(1, llm_slots(settings) // COMPARERS_SHARE)),
        default=packaged(embedder.kernel) if settings.default_calibration else None,
        claims=ClaimScorer(settings.claims_from_characters, threads=threads),
        threads=threads,
        spans=spans or NO_SPANS,
    )
    rail = Guardrail(scorer)
    chat = Chat(
        upstream=build_upstream(settings, llm, serving),
        scorer=ChatScorer(scorer, prompt_shape(settings), reporter(metrics, kept.keep)),
        serving=serving,
        spans=spans or NO_SPANS,
        admission=admission,
        one_call=partial(queue.one_call, settings.llm_timeout_s),
        mode=settings.chat_mode,
        deadline_s=settings.chat_deadline_s,
        effort=settings.chat_effort or None,
        abstain=settings.abstain,
        abstain_text=settings.abstain_text,
        abstain_fail_open=settings.abstain_fail_open,
    )
    senders = [one for one in (events, spans) if one is not None]
    parts = [metrics, threads, embedder, llm, chat.upstream, store, api_keys, kept, rail, chat.scorer]
    app = Described(
        title="Eigencal",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan([*senders, *parts], partial(about, settings, serving, llm, embedder)),
        docs_url=None,  # FastAPI's pages fetch their scripts from other hosts; ours is in `health`
        redoc_url=None,
    )
    app.body_models = BODIES
    app.state.services = Services(
        scorer=scorer,
        serving=serving,
        jobs=store.jobs,
        calibrations=store.calibrations,
        kept=kept,
        admission=admission,
        checks={"store": store.database.ready, "embedder": embedder.check, "llm": llm.check},
        metrics=metrics,
        limits=UploadLimits(num_samples=settings.num_samples),
        computing=threads,
        report_page=render_report,
        applies_now=applies_now,
        unreadable=store.database.unreadable_rows,
    )
    app.state.guardrail, app.state.chat = rail, chat
    app.state.keys = api_keys
    for routes in (score, openai, verify, guardrail, jobs, calibrations, evaluations, keys, health):
        app.include_router(routes.router)
    install(app)
    # The last one added is the first to see a request: refusals of BodyLimit have ids from RequestContext.
    app.add_middleware(BodyLimit)
    app.add_middleware(AnswerLimit)
    app.add_middleware(RequestContext, kinds=KINDS, responded=metrics.responded, spans=spans or NO_SPANS)
    app.add_middleware(PlainStart, errors=(EigencalError, WeightsError, OSError))
    return app


def render_report(report: Mapping[str, Any]) -> str:
    """Return the HTML page of a report, or of an evaluation. The first loads the drawing library."""
    if "comparison" in report:
        from service.evaluation.page import render_evaluation

        return render_evaluation(report)
    return render(report)


def _lifespan(components: Sequence[Any], about: Callable[[], Iterable[str]]) -> Callable[[FastAPI], Any]:
    """Start the components in the order given, log what it is `about`, stop them in reverse.

    The store comes after what it needs: with it begin the jobs that were left, which need the embedder and
    the LLM. What writes to it comes later still, and so can write to the last.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for component in components:
                # Before its start: one that fails half way through is stopped, too.
                stack.push_async_callback(component.stop)
                if hasattr(component, "start"):
                    await component.start()
            for line in about():
                log.info("%s", line)
            yield

    return lifespan
