"""The application: the parts that the settings ask for, started in order, under the routes."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI
from pydantic import BaseModel

from service import __version__
from service.adapters.heap import Heap
from service.adapters.weights.fetch import WeightsError
from service.api.gateways import guardrail, scores, verify
from service.api.gateways.guardrail import GuardrailCall
from service.api.gateways.shared import Gateways
from service.api.gateways.verify import VerifyRequest
from service.api.http.auth import Keys
from service.api.http.deps import Metrics, Pages, Services
from service.api.http.error_log import ErrorLog
from service.api.http.middleware import BodyLimit, PlainStart, RequestContext
from service.api.http.openapi import Described, Problem
from service.api.http.problems import install
from service.api.keys import routes as keys
from service.api.keys.schemas import KeyRequest
from service.api.openai import routes as openai
from service.api.routes import calibrations, docs, evaluations, health, jobs, score
from service.api.routes.calibration_schemas import CorrectionsRequest
from service.api.routes.job_schemas import (
    CalibrateForm,
    CalibrateRequest,
    EvaluateForm,
    EvaluateRequest,
)
from service.api.routes.score_schemas import BatchRequest, ScoreRequest
from service.app.drop_in import build_chat, build_upstream
from service.app.parts import (
    Component,
    Store,
    applies_now,
    build_embedder,
    build_events,
    build_llm,
    build_store,
    own_fingerprints,
    serving_of,
    upload_limits,
)
from service.app.start_log import build_start_log
from service.domain.calibration import Calibration
from service.domain.chat.upstream import Upstream
from service.domain.errors import EigencalError
from service.domain.gateways.guardrail import Guardrail
from service.domain.gateways.verifying import Verifier
from service.domain.keys.ring import KeyRing
from service.domain.ports import Embedder, LanguageModel
from service.domain.scoring.events import ScoreEvents
from service.domain.scoring.kept import KeptScores
from service.domain.scoring.scorer import Scorer
from service.domain.serving import LiveLoad
from service.domain.study.report_model import Report
from service.settings import Settings

log = logging.getLogger(__name__)

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
    store: Store | None = None,
    upstream: Upstream | None = None,
    events: ScoreEvents | None = None,
) -> FastAPI:
    """Return the application. Components given here stand in for those that the settings ask for.

    Nothing is loaded before the lifespan starts. Raises ValueError for settings that contradict themselves.
    """
    llm = llm or build_llm(settings)
    embedder = embedder or build_embedder(settings)
    serving, live = serving_of(settings), LiveLoad()
    store = store or build_store(settings, llm, embedder, serving, live)
    kept = KeptScores(store.kept, keep_s=settings.score_ttl_s, max_scores=settings.score_cache_size)
    made_keys = KeyRing(store.keys)
    events = events or build_events(settings)
    errors = ErrorLog()

    def in_force() -> list[Calibration]:
        own = {one.key() for one in own_fingerprints(serving, llm, embedder)}
        return [one for one in store.calibrations.any_active() if one.fingerprint.key() in own]

    metrics = Metrics(events, in_force=in_force, activations=store.calibrations.num_activations)
    scorer = Scorer(llm, embedder, store.calibrations, live=live, ood_abstain=settings.ood_abstain)
    gateways = Gateways(
        Verifier(scorer, serving, settings.verify_effort or None),
        Guardrail(scorer, serving, store.kept, store.peers, wait_s=settings.guardrail_wait_s),
    )
    chat = build_chat(
        settings,
        upstream or build_upstream(settings, llm, serving),
        scorer,
        serving,
        metrics=metrics,
        errors=errors,
        keep=kept.keep,
    )
    started = build_start_log(settings, llm, embedder, serving, store.calibrations)
    app = Described(
        title="Eigencal",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan(
            errors,
            Heap(),
            events,
            embedder,
            llm,
            chat.upstream,
            store,
            made_keys,
            kept,
            gateways.guardrail,
            chat.scorer,
            started,
        ),
        docs_url=None,  # FastAPI's pages fetch their scripts from other hosts; ours is `docs`
        redoc_url=None,
    )
    app.body_models = BODIES
    app.state.services = Services(
        scorer=scorer,
        serving=serving,
        jobs=store.jobs,
        calibrations=store.calibrations,
        kept=kept,
        checks={"store": store.check, "embedder": embedder.check, "llm": llm.check},
        batch_concurrency=settings.batch_concurrency,
        errors=errors,
        metrics=metrics,
        limits=upload_limits(settings),
        pages=Pages(render_home, render_report, render_calibrations),
        applies_now=lambda one: applies_now(one, own_fingerprints(serving, llm, embedder)),
    )
    app.state.gateways, app.state.chat = gateways, chat
    app.state.keys = Keys(
        settings.admin_key.get_secret_value(), settings.score_key.get_secret_value(), made_keys
    )
    for routes in (
        score,
        scores,
        openai,
        verify,
        guardrail,
        jobs,
        calibrations,
        evaluations,
        keys,
        health,
        docs,
    ):
        app.include_router(routes.router)
    install(app, errors)
    # The last one added is the first to see a request: refusals of BodyLimit have ids from RequestContext.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, max_held=settings.max_bodies_bytes)
    app.add_middleware(RequestContext)
    app.add_middleware(PlainStart, errors=(EigencalError, WeightsError, OSError))
    return app


def render_report(report: Mapping[str, Any]) -> str:
    """Return the HTML page of a report. The drawing library is loaded on the first."""
    from service.report import render

    return render(cast("Report", report))


def render_home(root: Mapping[str, Any]) -> str:
    """Return the HTML page of the root path. The template library is loaded on the first."""
    from service.report.pages import home

    return home(root)


def render_calibrations(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the HTML page of all calibrations."""
    from service.report.pages import calibrations

    return calibrations(found)


def _lifespan(*components: Component) -> Callable[[FastAPI], Any]:
    """Start the components in the order given, stop them in reverse.

    The store comes after what it needs: with it begin the jobs that were left, which need the embedder and
    the LLM. What writes to it comes later still, and so can write to the last. The port opens once all are
    started. An LLM server that is not up yet is no reason to wait; a component that cannot be had at all ends
    the process.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for component in components:
                # Before its start: one that fails half way through is stopped, too.
                stack.push_async_callback(component.stop)
                await component.start()
            yield

    return lifespan
