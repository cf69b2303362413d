"""Prometheus metrics of scoring, in a registry of their own (two applications in a process stay apart)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.domain.scoring.model import Score

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_UNIT = tuple(i / 10 for i in range(1, 11))


class Metrics:
    """Counts and times scores."""

    def __init__(self) -> None:
        self.registry = to = CollectorRegistry()
        self._scores = Counter("eigencal_scores", "Scores served.", ["calibrated"], registry=to)
        self._warnings = Counter("eigencal_score_warnings", "Warnings on scores.", ["code"], registry=to)
        self._errors = Counter("eigencal_score_errors", "Scores refused or failed.", ["code"], registry=to)
        self._stages = Histogram(
            "eigencal_score_stage_seconds", "Time by stage.", ["stage"], buckets=_SECONDS, registry=to
        )
        self._lambda = Histogram(
            "eigencal_lambda_max", "Largest eigenvalue served.", buckets=_UNIT, registry=to
        )
        self.in_flight = Gauge("eigencal_scores_in_flight", "Scores under way.", registry=to)
        self._calibrated = {flag: self._scores.labels(str(flag).lower()) for flag in (True, False)}

    def scored(self, score: Score) -> None:
        """Count a score."""
        self._calibrated[score.applied is not None].inc()
        self._lambda.observe(score.served.lambda_max)
        for warning in score.warnings:
            self._warnings.labels(warning.code).inc()
        for stage, seconds in score.timings_s.items():
            self._stages.labels(stage).observe(seconds)

    def failed(self, code: str) -> None:
        """Count an error."""
        self._errors.labels(code).inc()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
