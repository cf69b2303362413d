"""OpenTelemetry events: one for each score.

Names and attributes follow the GenAI conventions (status Development). They contain no text of a prompt or an
answer.
"""

import logging
from typing import Any

from service.errors import SERVER_MESSAGE
from service.scoring.score import Score, ScoreWarning
from service.tracing import TRACEPARENT, Sender, resource

log = logging.getLogger(__name__)

EVENT = "gen_ai.evaluation.result"
PROBABILITY, CANDIDATE, LAMBDA_MAX = "probability_correct", "candidate_probability", "lambda_max"


class OtelEvents(Sender):
    """Sends an event per score, as a child of the span in the caller's `traceparent`.

    The standard OTEL_* variables configure the collector (OTLP over HTTP), headers, batches and resource.
    Tests pass an `exporter` instead. Raises ImportError if the extra `otel` is not installed.
    """

    def __init__(self, *, exporter: Any = None) -> None:
        # Imported only when used: the import takes 0.2 s.
        from opentelemetry._logs import SeverityNumber
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

            exporter = OTLPLogExporter()
        self._severity = SeverityNumber.INFO
        self._propagator = TraceContextTextMapPropagator()
        self._provider = LoggerProvider(resource(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger = self._provider.get_logger("eigencal")

    def scored(self, score: Score) -> None:
        """Send a score: P(correct), else the candidate's probability, else lambda_max."""
        self._emit(attributes_of(score))

    def failed(self, code: str) -> None:
        """Send the code of an error instead of a score."""
        self._emit({"gen_ai.evaluation.name": LAMBDA_MAX, "error.type": code})

    def _emit(self, attributes: dict[str, Any]) -> None:
        sent = TRACEPARENT.get()
        context = self._propagator.extract({"traceparent": sent}) if sent else None
        try:
            self._logger.emit(
                context=context, severity_number=self._severity, event_name=EVENT, attributes=attributes
            )
        except Exception:  # an error of the library must not fail the score
            log.exception("an OpenTelemetry event cannot be sent")


def _without_text(warning: ScoreWarning) -> str:
    """Return a warning's message without the words of the LLM server, which may repeat a prompt."""
    return warning.message.partition(SERVER_MESSAGE)[0]


def attributes_of(score: Score) -> dict[str, Any]:
    """Return the attributes of a score's event."""
    candidate, decision = score.candidate, score.decision
    name, value = LAMBDA_MAX, score.lambda_max
    # P(correct) is that of the text decided about, which the caller shows.
    if score.decisive is not None:
        name, value = PROBABILITY, score.decisive
    elif candidate is not None and candidate.probability is not None:
        name, value = CANDIDATE, candidate.probability
    elif score.lambda_max is None:
        name, value = PROBABILITY, None
    attributes: dict[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.value": value,
        "gen_ai.evaluation.score.label": None if decision is None else decision.action,
        "gen_ai.evaluation.explanation": " ".join(
            [*([decision.reason] if decision else []), *map(_without_text, score.warnings)]
        )
        or None,
        "gen_ai.request.model": score.model,
        "eigencal.score.id": score.id,
        "eigencal.lambda_max": score.lambda_max,
        "eigencal.entropy": score.entropy,
        "eigencal.num_samples": score.num_samples,
        "eigencal.calibration.id": score.calibration.id if score.calibration else None,
    }
    return {key: item for key, item in attributes.items() if item is not None}
