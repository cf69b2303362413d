"""Whether a new calibration is activated: by held-out rows, against what is active now, or raw scores."""

from dataclasses import dataclass

from service.calibration.calibration import ActivateOption, Calibration
from service.spectral.resampling import Difference

RISK, LOSS, BRIER = "matrix risk", "log loss of P(correct)", "projection Brier"
MAX_REFUSED_SHARE = 0.02

_FEWER = "it serves fewer answers than the active calibration, so it would serve no request for more"

_SILENT = (
    "the active calibration tells P(correct), and this one has no model of it for any number of answers: "
    "they would lose that figure, and their decisions"
)

_BLIND = "the active calibration uses log-probabilities, and not all of these rows have them to judge it by"


@dataclass(frozen=True, slots=True)
class Gains:
    """What a calibration costs on held-out rows, minus what its rival costs on the same; below 0: better.

    against: id of the active calibration; None where there is none: then raw scores. risk: matrix log risk;
    brier: of the projection; loss: log loss of P(correct). In nats, but for brier.
    """

    against: str | None
    risk: Difference
    brier: Difference
    loss: Difference

    def better(self) -> list[str]:
        """Return in what it is better beyond chance. The Brier score follows the risk, and is no gain."""
        return [name for name, gap in ((RISK, self.risk), (LOSS, self.loss)) if gap.high < 0]

    def shortcomings(self) -> list[str]:
        """Return why the figures speak against activating, as clauses; none where they do not.

        Against an active calibration: worse beyond chance in any, or better beyond chance in neither risk nor
        loss. Against raw scores, which anything will do for but what is worse: not below them. Their risk is
        finite only by the eps that they are charged, so they must be beaten in projection Brier, too.
        """
        gaps = [(BRIER, self.brier), (RISK, self.risk)]
        if self.against is None:
            worse = [name for name, gap in gaps if not gap.value < 0]
            return (
                [f"on held-out prompts it is not better than raw scores ({', '.join(worse)})"]
                if worse
                else []
            )
        worse = [name for name, gap in (*gaps, (LOSS, self.loss)) if gap.low > 0]
        if worse:
            return [f"on held-out prompts it is worse than the active calibration ({', '.join(worse)})"]
        if not self.better():
            return [
                f"its gain over the active calibration on held-out prompts may be chance ({RISK}, {LOSS})"
            ]
        return []


def decide(
    calibration: Calibration,
    active: Calibration | None,
    asked: ActivateOption,
    gains: Gains,
    *,
    has_evidence: bool,
    refused: int,
    num_rows: int,
) -> tuple[bool, str]:
    """Return whether to activate, and why, as a sentence.

    has_evidence: whether all of the rows have log-probabilities; refused: how many of `num_rows` the LLM
    server refused.
    """
    activated, reason = asked == "always", f"{'A' if asked == 'always' else 'Not a'}ctivated as asked."
    if asked == "if_better":
        against = [*_vetoes(calibration, active, has_evidence), *gains.shortcomings()]
        activated = not against
        reason = f"Not activated: {against[0]}." if against else f"Activated: {_gain(gains)}."
    if activated and refused > MAX_REFUSED_SHARE * num_rows:
        return False, (
            f"Not activated: the LLM server refused {refused} of {num_rows} rows, more than 2 %, and those "
            "left may be unlike what is asked. Retry the job to ask for them again, or activate the "
            "calibration yourself."
        )
    return activated, reason


def _vetoes(calibration: Calibration, active: Calibration | None, has_evidence: bool) -> list[str]:
    """Return what speaks against it whatever the figures say."""
    if active is None:
        return []
    drawn = [one for num_samples, one in active.selectors.items() if num_samples]
    takes_evidence = active.evidence or any(one.map_for(None) is None for one in drawn)
    every = [
        (calibration.num_samples < active.num_samples, _FEWER),
        # A risk that is lower by chance on a few rows is not worth what they have too few verdicts for.
        (bool(drawn) and not any(calibration.selectors), _SILENT),
        (0 in active.selectors and 0 not in calibration.selectors, _SILENT),
        # Judged without log-probabilities, it is not the map that is served where there are some.
        (takes_evidence and not has_evidence, _BLIND),
    ]
    return [why for holds, why in every if holds]


def _gain(gains: Gains) -> str:
    if gains.against is None:
        return "none was active for this set-up, and on held-out prompts it is better than raw scores"
    better = ", ".join(gains.better())
    return f"on held-out prompts it is better than the active calibration, and not by chance ({better})"
