"""Whether a new calibration is activated: by held-out rows, against what is active now, or raw scores."""

from collections.abc import Iterable, Mapping

from service.calibration.calibration import Calibration
from service.calibration.fitting import Stream
from service.report.diagnostics import CrossValidated, brier_difference, risk_difference
from service.report.model import Asked, Decision, Estimate, estimate
from service.spectral.correctness_model import log_losses
from service.spectral.resampling import Difference, mean_difference

RISK, LOSS, BRIER = "matrix risk", "log loss of P(correct)", "projection Brier"
# What a gain may be in. The projection Brier follows the risk, and must not be worse.
GAINS = (RISK, LOSS)
MAX_REFUSED_SHARE = 0.02

_FEWER = "it serves fewer answers than the active calibration, so requests for more would be served raw"

_SILENT = (
    "the active calibration tells P(correct), and this one has no model of it for any number of answers: "
    "they would lose that figure, and their decisions"
)

_BLIND = "the active calibration uses log-probabilities, and not all of these rows have them to judge it by"


def decide(
    calibration: Calibration, active: Calibration | None, asked: Asked, bench: CrossValidated
) -> Decision:
    """Return whether to activate. asked: "if_better", "always" or "never"; bench: the rows, held out.

    An active calibration must be beaten beyond chance. Raw scores must be beaten in projection Brier, too:
    their risk is finite only by the eps that they are charged.
    """
    rival = "active" if active else "raw"
    risk = _estimate(risk_difference(bench, calibration.method, rival))
    brier = _estimate(brier_difference(bench, calibration.method, rival))
    decision: Decision = {
        "asked": asked,
        "activated": asked == "always",
        "against": active.id if active else None,
        "brier_difference": brier,
        "difference": risk,
        "loss_difference": _estimate(_loss(calibration, active, bench)),
        "reason": f"{'Activated' if asked == 'always' else 'Not activated'} as asked.",
    }
    if asked != "if_better":
        return decision
    against = [*_vetoes(calibration, active, bench), *shortcomings(decision)]
    if against:
        return decision | {"reason": f"Not activated: {against[0]}."}
    return decision | {"activated": True, "reason": f"Activated: {_gain(decision)}."}


def too_many_refused(refused: int, rows: int) -> str:
    """Return why a calibration is not activated by itself that lacks so many of its rows; "" for few."""
    if refused <= MAX_REFUSED_SHARE * rows:
        return ""
    return (
        f"Not activated: the LLM server refused {refused} of {rows} rows, more than 2 %, and those left may "
        "be unlike what is asked. Retry the job to ask for them again, or activate the calibration yourself."
    )


def _vetoes(calibration: Calibration, active: Calibration | None, bench: CrossValidated) -> list[str]:
    """Return what speaks against it whatever the figures say."""
    every: list[tuple[object, str]] = []
    if active is not None:
        takes_evidence = active.evidence or any(one.map_for(None) is None for one in active.deciders.values())
        every += [
            (calibration.num_samples < active.num_samples, _FEWER),
            # A risk that is lower by chance on a few rows is not worth what they have too few verdicts for.
            (active.deciders and not calibration.deciders, _SILENT),
            # Judged without log-probabilities, it is not the map that is served where there are some.
            (takes_evidence and "evidence" not in bench.held_out.risks, _BLIND),
        ]
    return [why for holds, why in every if holds]


def _loss(calibration: Calibration, active: Calibration | None, bench: CrossValidated) -> Difference:
    """Return the log loss of P(correct), each row's by a model without its fold, minus that of the rival.

    Who tells no P(correct) tells the share of right answers among other rows.
    """
    whole = bench.first_answers(calibration.num_samples)
    name = "evidence" if calibration.method == "evidence" else "depolarized"
    told = None if active is None else bench.correct_by(active)
    ours, theirs = whole.correct.get(name, whole.base), whole.base if told is None else told
    losses = [log_losses(one, whole.right) for one in (ours, theirs)]
    random = bench.rng(Stream.DIFFERENCES)
    return mean_difference(losses[0], losses[1], random, resamples=bench.resamples.difference)


def _estimate(found: Difference) -> Estimate:
    return estimate(found.value, found.low, found.high)


def _figures(decision: Decision) -> Mapping[str, Estimate]:
    """Return the differences that decide, by name; below 0: better."""
    figures = {BRIER: decision["brier_difference"], RISK: decision["difference"]}
    return figures | ({LOSS: decision["loss_difference"]} if decision["against"] else {})


def shortcomings(decision: Decision) -> list[str]:
    """Return why the figures speak against activating, as clauses; none where they do not.

    Against an active calibration: worse beyond chance in any, or better beyond chance in neither of `GAINS`.
    Against raw scores, which anything will do for but what is worse: not below them.
    """
    figures = _figures(decision)
    if decision["against"] is None:
        worse = [name for name, gap in figures.items() if gap["value"] is None or gap["value"] >= 0]
        return [f"on held-out prompts it is not better than raw scores ({_listed(worse)})"] if worse else []
    worse = [name for name, gap in figures.items() if gap["low"] is not None and gap["low"] > 0]
    if worse:
        return [f"on held-out prompts it is worse than the active calibration ({_listed(worse)})"]
    if not _better(figures):
        return [f"its gain over the active calibration on held-out prompts may be chance ({_listed(GAINS)})"]
    return []


def _better(figures: Mapping[str, Estimate]) -> list[str]:
    return [name for name in GAINS if (figures[name]["high"] or 0.0) < 0]


def _gain(decision: Decision) -> str:
    if decision["against"] is None:
        return "none was active for this set-up, and on held-out prompts it is better than raw scores"
    better = _listed(_better(_figures(decision)))
    return f"on held-out prompts it is better than the active calibration, and not by chance ({better})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
