"""Whether a new calibration is activated: by held-out rows, against what is active now, or raw scores."""

from collections.abc import Mapping

from service.domain.calibration import Calibration
from service.domain.study.bench import Bench
from service.domain.study.experiments.comparison import difference
from service.domain.study.model import estimate
from service.domain.study.report_model import Asked, Decision, Estimate

MAX_REFUSED_SHARE = 0.02
_FEWER = (
    "Not activated because it serves fewer answers than the active calibration: requests for more would be "
    "served raw."
)

_SILENT = (
    "Not activated because the active calibration tells P(correct), and this one has no model of it for any "
    "number of answers: answers would lose that figure, and their decisions."
)

_BLIND = (
    "Not activated because the active calibration uses log-probabilities, and not all of these rows have "
    "them to judge it by."
)


def decide(calibration: Calibration, active: Calibration | None, asked: Asked, bench: Bench) -> Decision:
    """Return whether to activate. asked: "if_better", "always" or "never"; bench: the rows, held out.

    Against an active calibration the cross-validated risk decides. Raw scores must be beaten in projection
    Brier, too: their risk is finite only by the eps that they are charged.
    """
    rival = "active" if active else "raw"
    risk = _difference(bench, "cv_risk", calibration.method, rival)
    brier = _difference(bench, "projection_brier", calibration.method, rival)
    worse = not_better(deciding(risk, brier, active.id if active else None))
    loss = _loss(calibration, active, bench)
    return {
        "asked": asked,
        "activated": asked == "always" or (asked == "if_better" and not worse and not loss),
        "against": active.id if active else None,
        "brier_difference": brier,
        "difference": risk,
        "reason": loss if loss and asked == "if_better" else _reason(asked, worse, active),
    }


def too_many_refused(refused: int, rows: int) -> str:
    """Return why a calibration is not activated by itself that lacks so many of its rows; "" for few."""
    if refused <= MAX_REFUSED_SHARE * rows:
        return ""
    return (
        f"Not activated: the LLM server refused {refused} of {rows} rows, more than 2 %, and those left may "
        "be unlike what is asked. Retry the job to ask for them again, or activate the calibration yourself."
    )


def _loss(calibration: Calibration, active: Calibration | None, bench: Bench) -> str:
    """Return what would be lost whatever the figures say, as a reason not to activate; "" for nothing."""
    if active is None:
        return ""
    if calibration.num_samples < active.num_samples:
        return _FEWER
    # A risk that is lower by chance on a few rows is not worth what they have too few verdicts for.
    if active.deciders and not calibration.deciders:
        return _SILENT
    # Judged without log-probabilities, it is not the map that is served where there are some.
    return _BLIND if active.evidence and "evidence" not in bench.held_out.risks else ""


def _difference(bench: Bench, figure: str, ours: str, rival: str) -> Estimate:
    found = difference(bench, figure, ours, rival)
    return estimate(found.value, found.low, found.high)


def deciding(risk: Estimate, brier: Estimate, against: str | None) -> dict[str, Estimate]:
    """Return the differences that must be below 0, by name. against: the active one's id, None: raw."""
    return {"risk": risk} if against else {"projection Brier": brier, "risk": risk}


def not_better(figures: Mapping[str, Estimate]) -> list[str]:
    """Return the names of the held-out figures in which it is not below its rival."""
    return [name for name, gap in figures.items() if gap["value"] is None or gap["value"] >= 0]


def _reason(asked: str, worse: list[str], active: Calibration | None) -> str:
    rival = "the active calibration" if active else "raw scores"
    if asked != "if_better":
        return f"{'Activated' if asked == 'always' else 'Not activated'} as asked."
    if worse:
        return f"Not activated: on held-out prompts it is not better than {rival} ({' and '.join(worse)})."
    alone = "" if active else "none was active for this set-up, and "
    return f"Activated: {alone}on held-out prompts it is better than {rival}."
