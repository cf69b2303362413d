"""OpenTelemetry events: one for each quantity of a score, under a fixed name.

Names and attributes follow the GenAI conventions (open-telemetry/semantic-conventions-genai, status
Development). The attributes `gen_ai.evaluation.evaluator.*` are proposed there (pull request 359). Events
contain no text of a prompt or an answer.
"""

import asyncio
import logging
import threading
from typing import Any

from service.http.door import TRACEPARENT
from service.scoring.score import Score

log = logging.getLogger(__name__)

EVENT = "gen_ai.evaluation.result"
PROBABILITY_CORRECT = "eigencal.probability_correct"
STOP_S = 5.0


class OtelEvents:
    """Sends the events of each score, as children of the span in the caller's `traceparent`.

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
        self._provider = LoggerProvider(_resource(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger = self._provider.get_logger("eigencal")

    async def stop(self) -> None:
        """Send the remaining events, for at most `STOP_S`."""
        # A daemon thread, because the exporter retries for longer than a shutdown may take.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, STOP_S)

    def scored(self, score: Score, response_id: str) -> None:
        """Send the events of a score. response_id: of the scored completion; "" if unknown."""
        for attributes in attributes_of(score, response_id):
            self._emit(attributes)

    def failed(self, code: str, response_id: str) -> None:
        """Send the code of an error instead of a score."""
        attributes = {"gen_ai.evaluation.name": PROBABILITY_CORRECT, "error.type": code}
        self._emit(_known(attributes | {"gen_ai.response.id": response_id}))

    def _emit(self, attributes: dict[str, Any]) -> None:
        sent = TRACEPARENT.get()
        context = self._propagator.extract({"traceparent": sent}) if sent else None
        try:
            self._logger.emit(
                context=context, severity_number=self._severity, event_name=EVENT, attributes=attributes
            )
        except Exception:  # an error of the library must not fail the score
            log.exception("an OpenTelemetry event cannot be sent")


def _resource() -> Any:
    """Return the OpenTelemetry resource that describes the service."""
    from opentelemetry.sdk.resources import Resource

    created = Resource.create()
    if str(created.attributes.get("service.name", "")).startswith("unknown_service"):
        # Merged afterwards: a name passed to `create` would override OTEL_SERVICE_NAME.
        created = created.merge(Resource({"service.name": "eigencal"}))
    return created


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value not in (None, "", [])}


def attributes_of(score: Score, response_id: str) -> list[dict[str, Any]]:
    """Return the attributes of a score's events.

    The event of P(correct), which carries the decision, is always there; the others if they have a value.
    """
    candidate, decision, calibration = score.candidate, score.decision, score.calibration
    common = {
        "gen_ai.response.id": response_id,
        "gen_ai.request.model": score.model,
        "gen_ai.evaluation.evaluator.id": calibration.id if calibration else None,
        "gen_ai.evaluation.evaluator.version": calibration.created_at.isoformat() if calibration else None,
        "eigencal.score.id": score.id,
        "eigencal.num_samples": score.num_samples,
        # Codes only: messages may repeat the LLM server's words.
        "eigencal.warnings": [warning.code for warning in score.warnings],
    }
    correct: dict[str, Any] = {
        "gen_ai.evaluation.name": PROBABILITY_CORRECT,
        # P(correct) of the text decided about, which the caller shows.
        "gen_ai.evaluation.score.value": score.decisive,
        "gen_ai.evaluation.score.label": decision.action if decision else None,
        "gen_ai.evaluation.explanation": decision.reason if decision else None,
    }
    quantities = {
        "eigencal.candidate_probability": candidate.probability if candidate else None,
        "eigencal.lambda_max": score.lambda_max,
        "eigencal.entropy": score.entropy,
    }
    others = [
        {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
        for name, value in quantities.items()
        if value is not None
    ]
    return [_known(attributes | common) for attributes in (correct, *others)]
