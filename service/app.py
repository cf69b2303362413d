"""Where everything is wired: the only place that reads the settings and knows every part."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service import __version__
from service.api import health, score
from service.api.bodies import RequestModel
from service.api.deps import Defaults, Services
from service.api.metrics import Metrics
from service.api.middleware import BodyLimit, RequestContext
from service.api.openapi import document
from service.api.problems import Problem, install
from service.api.score_schemas import BatchRequest, ScoreRequest
from service.domain.calibration import CalibrationSource, NoCalibrations
from service.domain.models import Sampling
from service.domain.ports import Embedder, LanguageModel
from service.domain.scoring import Scorer
from service.settings import Settings

log = logging.getLogger(__name__)

DESCRIPTION = """\
Scores how uncertain an LLM is about a prompt: draws answers, embeds them, and returns the calibrated largest
eigenvalue (`lambda_max`, confidence) and von Neumann entropy (uncertainty) of their density matrix.
"""


def build_llm(settings: Settings) -> LanguageModel:
    """Return the LLM adapter that the settings ask for. Raises ValueError for a bad template or regex."""
    from service.adapters.prompting import FEW_SHOT, PromptShape

    embedded = settings.llm_backend == "embedded"
    shape = PromptShape(
        settings.system_prompt,
        settings.few_shot or (FEW_SHOT if embedded else ""),
        settings.prompt_template,
        settings.answer_regex,
    )
    if embedded:
        from service.adapters.embedded_llm import EmbeddedLanguageModel

        return EmbeddedLanguageModel(
            settings.data_dir / "weights",
            shape=shape,
            threads=settings.llm_threads,
            max_waiting=settings.llm_queue,
        )
    from service.adapters.llm_http import HttpLanguageModel

    return HttpLanguageModel(
        settings.llm_url,
        model=settings.llm_model,
        api=settings.llm_api,
        api_key=settings.llm_api_key.get_secret_value(),
        shape=shape,
        timeout_s=settings.llm_timeout_s,
        max_concurrency=settings.llm_slots,
        use_priority=settings.llm_priority,
    )


def build_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings ask for."""
    if settings.embedder_url:
        from service.adapters.http_embedder import HttpEmbedder

        return HttpEmbedder(
            settings.embedder_url,
            settings.embedder,
            api_key=settings.embedder_api_key.get_secret_value(),
            cache_size=settings.embedder_cache,
        )
    from service.adapters.sentence_transformer import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        settings.embedder,
        cache_dir=settings.data_dir / "weights",
        device=settings.embedder_device or None,
        cache_size=settings.embedder_cache,
        max_queue=settings.embedder_queue,
        threads=settings.embedder_threads or None,
    )


def defaults_of(settings: Settings) -> Defaults:
    """Return what a request that says nothing gets."""
    sampling = Sampling(
        temperature=settings.sampling_temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=settings.max_tokens,
        stop=settings.default_stop(messages=False),
    )
    return Defaults(settings.num_samples, sampling, settings.default_stop(messages=True))


def create_app(
    settings: Settings,
    *,
    llm: LanguageModel | None = None,
    embedder: Embedder | None = None,
    calibrations: CalibrationSource | None = None,
) -> FastAPI:
    """Return the application. Parts given here stand in for those that the settings ask for.

    Nothing is loaded before the lifespan starts.
    """
    llm = llm or build_llm(settings)
    embedder = embedder or build_embedder(settings)
    calibrations = calibrations or NoCalibrations()
    app = FastAPI(
        title="Eigencal",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan(llm, embedder),
        redoc_url=None,
    )
    app.state.services = Services(
        scorer=Scorer(llm, embedder, calibrations),
        defaults=defaults_of(settings),
        checks={"embedder": embedder.check, "llm": llm.check},
        metrics=Metrics(),
        batch_concurrency=settings.batch_concurrency,
    )
    app.include_router(score.router)
    app.include_router(health.router)
    install(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    _describe(app)
    return app


def _lifespan(llm: LanguageModel, embedder: Embedder) -> Callable[[FastAPI], Any]:
    """Start the parts in the order in which they are needed, stop them in reverse.

    The embedder comes first: a score without it is lost work at the LLM. The port opens once all are started;
    an LLM server that is not up yet is no reason to wait, a part that cannot be had at all ends the process.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in (embedder, llm):
                stack.push_async_callback(part.stop)
                await part.start()
            yield

    return lifespan


def _describe(app: FastAPI) -> None:
    bodies: list[type[RequestModel]] = [ScoreRequest, BatchRequest]
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(document(app, [*bodies, Problem]))
        return made

    app.openapi = openapi  # type: ignore[method-assign]
