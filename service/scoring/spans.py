"""Traces by OpenTelemetry: a span for each request that is scored; below it LLM, embedder and spectrum.

Attributes as the GenAI conventions have them (status Development), without a text of a prompt or an answer.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

from service.embedding.port import Embedded, EmbedderIdentity
from service.errors import EigencalError
from service.llm.port import Generation, GenerationRequest, LLMIdentity
from service.llm.wire import MAX_MODEL_NAME_CHARS
from service.scoring.telemetry import Sender, resource

Attributes = Mapping[str, Any]


class Span:
    """A span that nobody records."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def tell(self, outcome: Any) -> None:
        """Take what came of the work: an HTTP status, a Generation, an Embedded."""


NO_SPAN = Span()


class Spans:
    """Spans of the work for a request; these are recorded nowhere, and cost nothing."""

    def request(self, method: str, path: str, traceparent: str) -> AbstractContextManager[Span]:
        """Return the span of a request to one of the paths that score, below the caller's."""
        return NO_SPAN

    def generation(
        self, asked: GenerationRequest, identity: Callable[[GenerationRequest], LLMIdentity]
    ) -> AbstractContextManager[Span]:
        """Return the span of drawing answers; several calls where the server gives few at once."""
        return NO_SPAN

    def forwarding(self, path: str) -> AbstractContextManager[Span]:
        """Return the span of a caller's own call to the LLM server, until the head of its answer."""
        return NO_SPAN

    def embedding(self) -> AbstractContextManager[Span]:
        """Return the span of embedding texts."""
        return NO_SPAN

    def spectrum(self, num_distinct: int) -> AbstractContextManager[Span]:
        """Return the span of the spectrum of so many distinct answers."""
        return NO_SPAN


NO_SPANS = Spans()


class _Recorded(Span):
    def __init__(self, span: Any, of: Callable[[Any], Attributes]) -> None:
        self._span = span
        self._of = of

    def tell(self, outcome: Any) -> None:
        self._span.set_attributes(
            {name: value for name, value in self._of(outcome).items() if value is not None}
        )


class OtelSpans(Sender, Spans):
    """Sends spans to a collector; the standard OTEL_* variables name it, and decide on sampling and batches.

    `exporter` stands in for them in tests. Raises ImportError where the extra `otel` is not installed.
    """

    def __init__(self, *, exporter: Any = None) -> None:
        # Imported only where switched on: they take a fifth of a second.
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._kinds, self._failed = trace.SpanKind, trace.Status(trace.StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()
        self._provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter()))
        self._tracer = self._provider.get_tracer("eigencal")

    def request(self, method: str, path: str, traceparent: str) -> AbstractContextManager[Span]:
        """Return the root: of the service, or below the span that the caller named."""
        sent = self._propagator.extract({"traceparent": traceparent}) if traceparent else None
        attributes = {"http.request.method": method, "http.route": path}
        return self._one(f"{method} {path}", self._kinds.SERVER, attributes, _answered, sent)

    def generation(
        self, asked: GenerationRequest, identity: Callable[[GenerationRequest], LLMIdentity]
    ) -> AbstractContextManager[Span]:
        """Return the span of an inference by the LLM."""
        of = identity(asked)
        model = of.model[:MAX_MODEL_NAME_CHARS]  # as callers may have written it
        operation = "chat" if asked.api(of.api) == "chat" else "text_completion"
        name = operation if asked.model else f"{operation} {model}"  # no caller's text is a name
        sampling = asked.sampling
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "openai",  # whose API is spoken
            "gen_ai.request.model": model,
            "gen_ai.request.choice.count": asked.num_samples,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": sampling.top_k,
        }
        return self._one(name, self._kinds.CLIENT, attributes, _drawn)

    def forwarding(self, path: str) -> AbstractContextManager[Span]:
        """Return the span of an inference of which only the call is known."""
        operation = "chat" if path.startswith("/chat/") else "text_completion"
        attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "openai"}
        return self._one(operation, self._kinds.CLIENT, attributes, _answered)

    def embedding(self) -> AbstractContextManager[Span]:
        """Return the span of embedding texts."""
        return self._one("embeddings", self._kinds.CLIENT, {"gen_ai.operation.name": "embeddings"}, _embedded)

    def spectrum(self, num_distinct: int) -> AbstractContextManager[Span]:
        """Return the span of the mathematics."""
        return self._one("spectrum", self._kinds.INTERNAL, {"eigencal.num_distinct": num_distinct}, dict)

    @contextmanager
    def _one(
        self,
        name: str,
        kind: Any,
        attributes: Attributes,
        of: Callable[[Any], Attributes],
        context: Any = None,
    ) -> Iterator[Span]:
        begun = self._tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            # What an exception says may hold what callers wrote; its code does not.
            record_exception=False,
            set_status_on_exception=False,
        )
        with begun as span:
            try:
                yield _Recorded(span, of)
            except Exception as error:
                code = error.code if isinstance(error, EigencalError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(self._failed)
                raise


def _answered(status: int) -> Attributes:
    return {"http.response.status_code": status, "error.type": str(status) if status >= 500 else None}


def _drawn(generation: Generation) -> Attributes:
    return {
        "gen_ai.response.model": generation.model,
        "gen_ai.usage.input_tokens": generation.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": generation.usage.completion_tokens,
        "eigencal.num_samples": len(generation.draws),
    }


def _embedded(embedded: Embedded) -> Attributes:
    made_by: EmbedderIdentity = embedded.made_by
    return {
        "gen_ai.request.model": made_by.name,
        "gen_ai.embeddings.dimension.count": made_by.dimension,
        "eigencal.num_texts": len(embedded.vectors),
    }


def _exporter() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
