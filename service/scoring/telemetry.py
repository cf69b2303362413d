"""Scores as OpenTelemetry events `gen_ai.evaluation.result` (GenAI conventions, status Development).

No text of a prompt or an answer is in them.
"""

import asyncio
import logging
import threading
from contextvars import ContextVar
from typing import Any

from service.scoring.score import Score

log = logging.getLogger(__name__)

EVENT = "gen_ai.evaluation.result"
PROBABILITY, CANDIDATE, LAMBDA_MAX = "probability_correct", "candidate_probability", "lambda_max"
RANK = "rank_score"  # where no answer was drawn, and the default calibration serves
STOP_S = 5.0


# The caller's `traceparent` (W3C Trace Context), for all that is done for its request, in other tasks, too.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")


class Sender:
    """What sends a collector something, by a provider of OpenTelemetry."""

    _provider: Any
    _stopped = False

    async def start(self) -> None:
        """Nothing to begin: the batch processor has a thread of its own."""

    async def stop(self) -> None:
        """Send what is left; a collector that does not answer is not waited for long. Idempotent."""
        if not self._stopped:
            self._stopped = True
            # A daemon: the exporter tries again for longer than a stop may take.
            last = threading.Thread(target=self._provider.shutdown, daemon=True)
            last.start()
            await asyncio.to_thread(last.join, STOP_S)


class OtelEvents(Sender):
    """Sends an event per score, as a child of the span whose `traceparent` the caller sent.

    The standard OTEL_* variables name the collector (OTLP by HTTP), and decide on headers, batches and
    resource. `exporter` stands in for them in tests. Raises ImportError where the extra `otel` is not
    installed.
    """

    def __init__(self, *, exporter: Any = None) -> None:
        # Imported only where switched on: they take a fifth of a second.
        from opentelemetry._logs import SeverityNumber
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._severity = SeverityNumber.INFO
        self._propagator = TraceContextTextMapPropagator()
        self._provider = LoggerProvider(resource(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter or _exporter()))
        self._logger = self._provider.get_logger("eigencal")

    def scored(self, score: Score) -> None:
        """Tell of a score: P(correct), else the probability of a candidate, lambda_max, or a rank."""
        self._emit(attributes_of(score))

    def failed(self, code: str) -> None:
        """Tell of an error instead of a score."""
        self._emit({"gen_ai.evaluation.name": LAMBDA_MAX, "error.type": code})

    def _emit(self, attributes: dict[str, Any]) -> None:
        sent = TRACEPARENT.get()
        context = self._propagator.extract({"traceparent": sent}) if sent else None
        try:
            self._logger.emit(
                context=context, severity_number=self._severity, event_name=EVENT, attributes=attributes
            )
        except Exception:  # of a library, beside a score that is there
            log.exception("an event of OpenTelemetry cannot be made")


def attributes_of(score: Score) -> dict[str, Any]:
    """Return the attributes of a score's event."""
    candidate, decision = score.candidate, score.decision
    name, value = LAMBDA_MAX, score.lambda_max
    # Of the text that the caller shows, where it is known.
    if score.decisive is not None:
        name, value = PROBABILITY, score.decisive
    elif candidate is not None and candidate.probability is not None:
        name, value = CANDIDATE, candidate.probability
    elif score.lambda_max is None:
        name, value = (PROBABILITY, None) if score.rank_score is None else (RANK, score.rank_score)
    attributes: dict[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.value": value,
        "gen_ai.evaluation.score.label": None if decision is None else decision.action,
        "gen_ai.evaluation.explanation": " ".join(
            [*([decision.reason] if decision else []), *(warning.message for warning in score.warnings)]
        )
        or None,
        "gen_ai.request.model": score.model,
        "eigencal.score.id": score.id,
        "eigencal.lambda_max": score.lambda_max,
        "eigencal.entropy": score.entropy,
        "eigencal.num_samples": score.num_samples,
        "eigencal.calibration.id": score.calibration.id if score.calibration else None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def resource() -> Any:
    """Return what the service is to a collector."""
    from opentelemetry.sdk.resources import Resource

    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        # Only then: a name given to `create` would go before that of OTEL_SERVICE_NAME.
        found = found.merge(Resource({"service.name": "eigencal"}))
    return found


def _exporter() -> Any:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    return OTLPLogExporter()
