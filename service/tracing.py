"""OpenTelemetry spans of scoring requests, with child spans of their work.

Names and attributes follow the GenAI conventions (status Development). They contain no text of a prompt or an
answer.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from service.embedding.port import Embedded
from service.errors import EigencalError
from service.llm.port import Generation, GenerationRequest, LLMIdentity
from service.llm.wire import MAX_MODEL_NAME_CHARS

STOP_S = 5.0
# The caller's `traceparent` (W3C Trace Context), inherited by all tasks of its request.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")


class Sender:
    """Base of classes that send data to a collector through an OpenTelemetry provider."""

    _provider: Any

    async def stop(self) -> None:
        """Send the remaining data, for at most `STOP_S`."""
        # A daemon thread, because the exporter retries for longer than a shutdown may take.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, STOP_S)


def resource() -> Any:
    """Return the OpenTelemetry resource that describes the service."""
    from opentelemetry.sdk.resources import Resource

    created = Resource.create()
    if str(created.attributes.get("service.name", "")).startswith("unknown_service"):
        # Merged afterwards: a name passed to `create` would override OTEL_SERVICE_NAME.
        created = created.merge(Resource({"service.name": "eigencal"}))
    return created


Attributes = Mapping[str, Any]


class Span:
    """A span that is not recorded."""

    def tell(self, outcome: Any) -> None:
        """Record the outcome of the work: an HTTP status, a Generation or an Embedded."""


NO_SPAN: AbstractContextManager[Span] = nullcontext(Span())


class _Recorded(Span):
    def __init__(self, span: Any, describe: Callable[[Any], Attributes]) -> None:
        self._span = span
        self._describe = describe

    def tell(self, outcome: Any) -> None:
        self._span.set_attributes(
            {name: value for name, value in self._describe(outcome).items() if value is not None}
        )


class Spans:
    """Spans of the work for a request. This class records nothing, `OtelSpans` does."""

    is_recording = False

    def request(self, method: str, path: str, traceparent: str) -> AbstractContextManager[Span]:
        """Return the span of a scoring request, a child of the caller's span if `traceparent` is set."""
        attributes = {"http.request.method": method, "http.route": path}
        return self._span(f"{method} {path}", "SERVER", attributes, _of_status, traceparent)

    def generation(
        self, asked: GenerationRequest, identity: Callable[[GenerationRequest], LLMIdentity]
    ) -> AbstractContextManager[Span]:
        """Return the span of drawing answers, which may take several calls to the LLM."""
        if not self.is_recording:
            return NO_SPAN
        llm = identity(asked)
        model = llm.model[:MAX_MODEL_NAME_CHARS]  # callers may have sent a longer name
        operation = "chat" if asked.api(llm.api) == "chat" else "text_completion"
        name = operation if asked.model else f"{operation} {model}"  # span names contain no caller's text
        sampling = asked.sampling
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "openai",  # the API's vendor
            "gen_ai.request.model": model,
            "gen_ai.request.choice.count": asked.num_samples,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": sampling.top_k,
        }
        return self._span(name, "CLIENT", attributes, _of_generation)

    def forwarding(self, path: str) -> AbstractContextManager[Span]:
        """Return the span of a caller's call to the LLM server, until the head of the answer."""
        operation = "chat" if path.startswith("/chat/") else "text_completion"
        attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "openai"}
        return self._span(operation, "CLIENT", attributes, _of_status)

    def embedding(self) -> AbstractContextManager[Span]:
        """Return the span of embedding texts."""
        return self._span("embeddings", "CLIENT", {"gen_ai.operation.name": "embeddings"}, _of_embedded)

    def spectrum(self, num_distinct: int) -> AbstractContextManager[Span]:
        """Return the span of computing the spectrum of `num_distinct` answers."""
        return self._span("spectrum", "INTERNAL", {"eigencal.num_distinct": num_distinct}, dict)

    def _span(
        self,
        name: str,
        kind: str,
        attributes: Attributes,
        describe: Callable[[Any], Attributes],
        traceparent: str = "",
    ) -> AbstractContextManager[Span]:
        """Return a span. kind: OpenTelemetry's. describe: returns the attributes of an outcome."""
        return NO_SPAN


NO_SPANS = Spans()


class OtelSpans(Sender, Spans):
    """Sends spans to a collector. The standard OTEL_* variables configure it, sampling and batches.

    Tests pass an `exporter` instead. Raises ImportError if the extra `otel` is not installed.
    """

    is_recording = True

    def __init__(self, *, exporter: Any = None) -> None:
        # Imported only when used: the import takes 0.2 s.
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        self._kinds, self._failed = trace.SpanKind, trace.Status(trace.StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()
        self._provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("eigencal")

    @contextmanager
    def _span(
        self,
        name: str,
        kind: str,
        attributes: Attributes,
        describe: Callable[[Any], Attributes],
        traceparent: str = "",
    ) -> Iterator[Span]:
        begun = self._tracer.start_as_current_span(
            name,
            context=self._propagator.extract({"traceparent": traceparent}) if traceparent else None,
            kind=self._kinds[kind],
            attributes=attributes,
            # The message of an exception may quote the caller's text; its code does not.
            record_exception=False,
            set_status_on_exception=False,
        )
        with begun as span:
            try:
                yield _Recorded(span, describe)
            except Exception as error:
                code = error.code if isinstance(error, EigencalError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(self._failed)
                raise


def _of_status(status: int) -> Attributes:
    return {"http.response.status_code": status, "error.type": str(status) if status >= 500 else None}


def _of_generation(generation: Generation) -> Attributes:
    return {
        "gen_ai.response.model": generation.model,
        "gen_ai.usage.input_tokens": generation.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": generation.usage.completion_tokens,
        "eigencal.num_samples": len(generation.draws),
    }


def _of_embedded(embedded: Embedded) -> Attributes:
    return {
        "gen_ai.request.model": embedded.made_by.name,
        "gen_ai.embeddings.dimension.count": embedded.made_by.dimension,
        "eigencal.num_texts": len(embedded.vectors),
    }
