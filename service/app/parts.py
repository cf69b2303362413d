"""The components that the settings ask for, each built in one place."""

import logging
import os
from dataclasses import asdict, replace
from typing import Any, Protocol

from service import __version__
from service.adapters.llm.prompting import FEW_SHOT, PromptShape
from service.domain.devdata.bytes import UploadLimits
from service.domain.errors import EmbedderUnavailable
from service.domain.jobs.model import CalibrationStore, JobQueue
from service.domain.jobs.setup import Setup
from service.domain.keys.store import KeyStore
from service.domain.models import CALLER, Fingerprint, Message, Sampling, service_fingerprint, shape_hash
from service.domain.ports import Embedder, KeptDocuments, LanguageModel, Peers
from service.domain.scoring.events import NoEvents, ScoreEvents
from service.domain.serving import Efforts, LiveLoad, Serving
from service.settings import Settings

log = logging.getLogger(__name__)
EMBEDDER_PARTS = frozenset(
    ("embedder", "embedder_revision", "embedder_precision", "embedder_dimension", "empty_answers")
)
OTEL_VARIABLES = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Component(Protocol):
    """A component with start and stop."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End; idempotent."""


class Store(Component, Protocol):
    """Calibrations, the jobs that make them, keys, and documents kept for a while."""

    @property
    def calibrations(self) -> CalibrationStore:
        """Return the stored calibrations."""

    @property
    def jobs(self) -> JobQueue:
        """Return the queue of jobs."""

    @property
    def kept(self) -> KeptDocuments:
        """Return the documents that replicas share for a while."""

    @property
    def keys(self) -> KeyStore:
        """Return the keys that were made."""

    @property
    def peers(self) -> Peers:
        """Return the replicas of this store."""

    async def check(self) -> None:
        """Return when the store answers; raise StoreUnavailable when it does not."""


def prompt_shape(settings: Settings) -> PromptShape:
    """Return what is put around a prompt. Raises ValueError for a bad template or regex."""
    embedded = settings.llm_backend == "embedded"
    return PromptShape(
        settings.system_prompt,
        settings.few_shot or (FEW_SHOT if embedded else ""),
        settings.prompt_template,
        settings.answer_regex,
    )


def build_llm(settings: Settings) -> LanguageModel:
    """Return the LLM adapter that the settings ask for. Raises ValueError for a bad template or regex.

    Either tells the log-probability of each answer, a server where it can.
    """
    shape = prompt_shape(settings)
    if settings.llm_backend == "embedded":
        # Imported only where needed, as the others below: torch and transformers take seconds.
        from service.adapters.embedded_llm.model import EmbeddedLanguageModel

        return EmbeddedLanguageModel(
            settings.data_dir / "weights",
            shape=shape,
            threads=settings.llm_threads,
            max_waiting=settings.resolved_llm_queue(),
        )
    from service.adapters.llm.openai_server import HttpLanguageModel

    return HttpLanguageModel(
        settings.llm_url,
        model=settings.llm_model,
        api=settings.llm_api,
        api_key=settings.llm_api_key.get_secret_value(),
        shape=shape,
        timeout_s=settings.llm_timeout_s,
        max_concurrency=settings.llm_slots,
        max_waiting=settings.resolved_llm_queue(),
        use_priority=settings.llm_priority,
        logprobs=True,
        stream_to_listeners=settings.embed_early,
        proxies_from_env=settings.proxies_from_env,
    )


def build_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings ask for."""
    if settings.embedder_url:
        from service.adapters.embedder.http import HttpEmbedder

        return HttpEmbedder(
            settings.embedder_url,
            settings.embedder,
            api_key=settings.embedder_api_key.get_secret_value(),
            cache_size=settings.embedder_cache,
            max_queue=settings.embedder_queue,
            empty_answers=settings.empty_answers,
            proxies_from_env=settings.proxies_from_env,
        )
    from service.adapters.embedder.local import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        settings.embedder,
        cache_dir=settings.data_dir / "weights",
        device=settings.embedder_device or None,
        cache_size=settings.embedder_cache,
        max_queue=settings.embedder_queue,
        threads=settings.embedder_threads or None,
        empty_answers=settings.empty_answers,
    )


def build_events(settings: Settings) -> ScoreEvents:
    """Return what tells a collector of scores. Raises ValueError where it is asked for and not installed."""
    standard = any(os.environ.get(name) for name in OTEL_VARIABLES)
    if not (settings.otel_endpoint or standard):
        return NoEvents()
    from service.adapters.telemetry import OtelEvents

    try:
        return OtelEvents(settings.otel_endpoint)
    except ImportError:
        said = 'OpenTelemetry is not installed: pip install "eigencal-service[otel]"'
        if settings.otel_endpoint:
            raise ValueError(said) from None
        # The variables may be meant for others in the same environment.
        log.warning("%s. No events are sent, though an OTEL_ variable names a collector.", said)
        return NoEvents()


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
    efforts = Efforts(settings.effort_low, settings.effort_medium, settings.effort_high)
    return Serving(
        settings.num_samples,
        sampling,
        messages_sampling,
        efforts,
        target_error=settings.target_error,
        confidence=settings.confidence,
    )


def upload_limits(settings: Settings) -> UploadLimits:
    """Return what an upload may hold."""
    return UploadLimits(
        max_bytes=settings.max_upload_bytes,
        max_texts=settings.max_calibration_texts,
        num_samples=settings.num_samples,
    )


def build_store(
    settings: Settings, llm: LanguageModel, embedder: Embedder, serving: Serving, live: LiveLoad
) -> Store:
    """Return the store and the queue of jobs that the settings ask for."""
    from service.app.replica import build_replica

    settings.data_dir.mkdir(parents=True, exist_ok=True)
    return build_replica(
        settings.resolved_database_url(),
        replica_id=settings.resolved_replica_id(),
        llm=llm,
        embedder=embedder,
        serving=serving,
        setup=job_setup(settings, llm, serving),
        slots=min(settings.calibration_max_concurrency, llm_slots(settings)),
        live=live,
        kept_documents=settings.score_cache_size,
        own_keys=lambda: own_keys(serving, llm, embedder),
        version=__version__,
    )


def job_setup(settings: Settings, llm: LanguageModel, serving: Serving) -> Setup:
    """Return what jobs posted here are bound to, before anything is learnt from the LLM server.

    Where no model is configured, the server decides which it is: then its address stands for it.
    """
    asked = llm.identity(serving.request(prompt="?"))
    server = "" if asked.model else shape_hash(url=settings.llm_url)
    return Setup(
        {"embedder": settings.embedder, "empty_answers": settings.empty_answers},
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


def own_fingerprints(serving: Serving, llm: LanguageModel, embedder: Embedder) -> tuple[Fingerprint, ...]:
    """Return the fingerprints of prompts, of conversations, and of those with a system message of their own.

    None until the embedder has told its identity.
    """
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
    return tuple(service_fingerprint(llm.identity(one), one.sampling, made_by) for one in asked)


def own_keys(serving: Serving, llm: LanguageModel, embedder: Embedder) -> tuple[str, ...]:
    """Return the fingerprint keys of prompts, and of conversations without a system message of their own."""
    return tuple(one.key() for one in own_fingerprints(serving, llm, embedder)[:2])


def applies_now(fingerprint: Fingerprint, own: tuple[Fingerprint, ...]) -> bool:
    """Tell whether it is that of a present set-up; of answers that callers drew, whether the embedder is."""
    if fingerprint.source == CALLER:
        return any(EMBEDDER_PARTS.isdisjoint(fingerprint.differs(one)) for one in own)
    return fingerprint.key() in {one.key() for one in own}
