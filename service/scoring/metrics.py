"""Prometheus metrics of scores, requests and the parts of the service."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from service.calibration.calibration import Calibration
from service.errors import EigencalError
from service.http.door import SECONDS
from service.scoring.score import Score
from service.scoring.telemetry import OtelEvents

_UNIT = tuple(i / 10 for i in range(1, 11))
LAG_EVERY_S = 0.25


class Metrics(Collector):
    """Prometheus metrics in their own registry, so that two applications in a process stay separate.

    `events`: receives every counted score and error. `in_force`: returns the active calibrations of the
    service's own set-up; `activations`: returns the number of activations so far, on all replicas. `gauges`:
    further gauges, by name and help; `llm_failures`: draws since the start that failed or were cut, by error
    code. Between `start` and `stop` the lag of the event loop is measured.
    """

    def __init__(
        self,
        events: OtelEvents | None = None,
        *,
        in_force: Callable[[], Sequence[Calibration]] = tuple,
        activations: Callable[[], int] = int,
        gauges: Mapping[tuple[str, str], Callable[[], float]] = MappingProxyType({}),
        llm_failures: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._events = events
        self._in_force = in_force
        self._activations = activations
        self._llm_failures = llm_failures
        self._watch: asyncio.Task[None] | None = None
        self.registry = to = CollectorRegistry()
        to.register(self)
        ProcessCollector(registry=to)
        counter, gauge = partial(Counter, registry=to), partial(Gauge, registry=to)
        histogram = partial(Histogram, registry=to)
        for (name, help_), value in gauges.items():
            gauge(name, help_).set_function(value)
        # `calibration`: its id; empty for scores without a calibration.
        self._scores = counter("eigencal_scores", "Scores served.", ["calibrated"])
        self._warnings = counter("eigencal_score_warnings", "Warnings on scores.", ["code", "calibration"])
        self._decisions = counter("eigencal_decisions", "Decisions by action.", ["action", "calibration"])
        late = "Chats answered before their score was ready. Counted when the score is ready."
        self._pending = counter("eigencal_chat_scores_pending", late, ["calibration"])
        self._errors = counter("eigencal_score_errors", "Scores refused or failed.", ["code"])
        shed = "Chats answered without a score because the service was overloaded."
        self._shed = counter("eigencal_chat_scores_shed", shed)
        stages = "eigencal_score_stage_seconds"
        self._stages = histogram(stages, "Time of scores by stage, in seconds.", ["stage"], buckets=SECONDS)
        self._lambda = histogram("eigencal_lambda_max", "Largest eigenvalue served.", buckets=_UNIT)
        self.in_flight = gauge("eigencal_scores_in_flight", "Scores in progress.")
        self._tokens = counter(
            "eigencal_score_tokens", "Tokens of scores, counted by the LLM.", ["direction"]
        )
        self._lag = histogram(
            "eigencal_event_loop_lag_seconds",
            "Delay of the event loop: how much later than scheduled it woke up.",
            buckets=(0.001, 0.0025, *SECONDS[:-3]),
        )
        self._part_up = gauge(
            "eigencal_part_up", "1 if the part (store, embedder or LLM) works, else 0.", ["part"]
        )
        by_state = "Jobs by state, on all replicas. Absent if the store is unavailable."
        self._jobs = gauge("eigencal_jobs", by_state, ["state"])

    async def start(self) -> None:
        """Start measuring the event loop."""
        self._watch = asyncio.create_task(self._watching(), name="loop-lag")

    async def stop(self) -> None:
        """Stop measuring. Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    async def _watching(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lag.observe(max(clock() - due, 0.0))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are computed on request."""
        active = GaugeMetricFamily(
            "eigencal_active_calibration", "1 for an active calibration.", labels=["calibration", "name"]
        )
        age = GaugeMetricFamily(
            "eigencal_active_calibration_age_seconds",
            "Time since the fit of the calibration.",
            labels=["calibration"],
        )
        for calibration in self._in_force():
            active.add_metric([calibration.id, calibration.name], 1)
            age.add_metric([calibration.id], (datetime.now(UTC) - calibration.created_at).total_seconds())
        yield active
        yield age
        yield CounterMetricFamily(
            "eigencal_activations", "Activations of calibrations, on all replicas.", value=self._activations()
        )
        failures = CounterMetricFamily(
            "eigencal_llm_failures",
            "LLM draws of scores and jobs that failed or were cut, by error code.",
            labels=["code"],
        )
        for code, count in self._llm_failures.items():
            failures.add_metric([code], count)
        yield failures

    def scored(self, score: Score, response_id: str = "") -> None:
        """Count a score. response_id: of the scored completion, for the events; "" if unknown."""
        self._scores.labels(str(score.calibrated).lower()).inc()
        if score.lambda_max is not None:
            self._lambda.observe(score.lambda_max)
        calibration = _calibration_of(score)
        for warning in score.warnings:
            self._warnings.labels(warning.code, calibration).inc()
        if score.decision is not None:
            self._decisions.labels(score.decision.action, calibration).inc()
        for stage, milliseconds in score.timings_ms:
            if milliseconds is not None:
                self._stages.labels(stage).observe(milliseconds / 1000)
        if score.usage is not None:
            self._tokens.labels("prompt").inc(score.usage.prompt_tokens)
            self._tokens.labels("completion").inc(score.usage.completion_tokens)
        if self._events is not None:
            self._events.scored(score, response_id)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a score under way, and the error that it ends with. The error is raised again."""
        with self.in_flight.track_inprogress():
            try:
                yield
            except EigencalError as error:
                self.failed(error.code)
                raise

    def failed(self, code: str, response_id: str = "") -> None:
        """Count an error. response_id: see `scored`."""
        self._errors.labels(code).inc()
        if self._events is not None:
            self._events.failed(code, response_id)

    def was_shed(self) -> None:
        """Count a chat that was answered without a score because the service was overloaded."""
        self._shed.inc()

    def was_pending(self, score: Score | None) -> None:
        """Count a chat that was answered before its score was ready; None: the score failed."""
        self._pending.labels(_calibration_of(score)).inc()

    def text(self, parts: Mapping[str, bool], jobs: Mapping[str, int]) -> bytes:
        """Return all metrics in the Prometheus text format.

        `parts`: True for each part that works; `jobs`: numbers of jobs by state.
        """
        for part, works in parts.items():
            self._part_up.labels(part).set(works)
        self._jobs.clear()
        for state, count in jobs.items():
            self._jobs.labels(state).set(count)
        return generate_latest(self.registry)


def _calibration_of(score: Score | None) -> str:
    return score.calibration.id if score is not None and score.calibration else ""
