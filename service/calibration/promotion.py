"""The promotion of a new calibration: whether it is activated, and how many answers it recommends.

A calibration is activated by its figures on held-out rows, against the active calibration or raw scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import ActivateOption, Calibration
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import Fitted
from service.calibration.rows import FEW_ROWS
from service.spectral.correctness_model import log_losses
from service.spectral.resampling import Difference
from service.spectral.selective import promise

RISK, LOSS, BRIER = "matrix risk", "log loss of P(correct)", "projection Brier"
MAX_REFUSED_SHARE = 0.02

_FEWER = "it serves fewer answers than the active calibration, so it would serve no request for more"

_SILENT = (
    "the active calibration gives P(correct) where this one has no model of it: scores would lose that "
    "figure and their decisions"
)

_NOT_OWN = (
    "without drawn answers, the active calibration's P(correct) is based on your rows, but this one's is "
    "based on the bundled questions"
)

_SMALLER = "the active calibration was fitted on more rows"

_UNCHECKED = "the active calibration uses self-checks, and these rows have none to judge it by"

_BLIND = "the active calibration uses log-probabilities, and some of these rows have none to judge it by"


@dataclass(frozen=True, slots=True)
class Improvement:
    """The cost of a calibration on held-out rows minus the cost of its rival on them; below 0 is better.

    against: id of the rival; None if it is raw scores. risk: matrix log risk; brier: of the projection; loss:
    log loss of P(correct). In nats, except brier. informative: True if the projection Brier is below the
    Brier of one confidence for all prompts, or P(correct) beats the base rate beyond chance.
    has_bundled_prior: True if the rival is the bundled calibration, the prior of the fit.
    """

    against: str | None
    risk: Difference
    brier: Difference
    loss: Difference
    informative: bool = True
    has_bundled_prior: bool = False

    def better(self) -> list[str]:
        """Return the figures with a 95 % interval below 0: risk, log loss or both.

        The Brier score follows the risk and does not count.
        """
        return [name for name, gap in ((RISK, self.risk), (LOSS, self.loss)) if gap.high < 0]

    def shortcomings(self) -> list[str]:
        """Return the reasons not to activate the calibration, as clauses; empty if there are none.

        Against an active calibration: significantly worse in any figure. Unless its prior is the bundled
        calibration, also: significantly better in neither risk nor loss. Against raw scores: projection Brier
        or risk not lower. The Brier counts because the risk of raw scores is finite only through the eps that
        they are charged. Without a bundled prior, also: not informative. A map fitted on noise beats raw
        scores with the same confidence for every prompt.
        """
        if self.has_bundled_prior:
            return self._worse()
        against = self._against_raw() if self.against is None else self._against_active()
        if not self.informative:
            against.append(
                "on held-out prompts neither its confidence nor P(correct) is more informative than one "
                "number for all prompts"
            )
        return against

    def _against_raw(self) -> list[str]:
        worse = [name for name, gap in ((BRIER, self.brier), (RISK, self.risk)) if not gap.value < 0]
        return [f"on held-out prompts it is not better than raw scores ({', '.join(worse)})"] if worse else []

    def _worse(self) -> list[str]:
        gaps = [(BRIER, self.brier), (RISK, self.risk), (LOSS, self.loss)]
        worse = ", ".join(name for name, gap in gaps if gap.low > 0)
        known = "the bundled calibration" if self.has_bundled_prior else "the active calibration"
        return [f"on held-out prompts it is worse than {known} ({worse})"] if worse else []

    def _against_active(self) -> list[str]:
        if worse := self._worse():
            return worse
        if not self.better():
            return [
                f"its gain over the active calibration on held-out prompts may be chance ({RISK}, {LOSS})"
            ]
        return []


@dataclass(frozen=True, slots=True)
class Promotion:
    """The decision on a new calibration.

    activated, reason: whether it becomes the active one, and why, as a sentence. asked: the caller's option.
    improvement: its figures on held-out rows. num_samples: the recommended number of answers: the fewest that
    reach the promise at the target error, else the number recommended by the log loss of P(correct); None
    without a recommendation.
    """

    asked: ActivateOption
    activated: bool
    reason: str
    improvement: Improvement
    num_samples: int | None


def promote(
    calibration: Calibration,
    active: Calibration | None,
    fitted: Fitted,
    context: CrossValidated,
    *,
    rival: Calibration | None = None,
    asked: ActivateOption,
    target_error: float,
    confidence: float,
    num_rows: int,
    refused: int = 0,
    corrects: str = "",
) -> Promotion:
    """Decide on a fitted calibration. Blocks for seconds.

    active: the active calibration of the same fingerprint. rival: replaces it in the comparison if it was
    fitted on the held-out rows. target_error, confidence: the default target of decisions. num_rows: rows in
    the file; refused: number of rows that the LLM server refused. corrects: id of the calibration with the
    same rows before their verdicts were corrected.
    """
    improvement = held_out_improvement(calibration, rival or active, context)
    if fitted.models and active is not None and active.origin != "own":
        improvement = replace(improvement, has_bundled_prior=True)
    activated, reason = _decide(
        calibration,
        active,
        asked,
        improvement,
        has_evidence="evidence" in fitted.maps.risks,
        refused=refused,
        num_rows=num_rows,
        doubts=[] if improvement.has_bundled_prior else _doubts(fitted.rows.num_rows, fitted.rows.right),
    )
    if corrects:
        reason += f" Its rows are those of {corrects} with corrected verdicts."
    promising = (
        num_samples
        for num_samples, decided in sorted(fitted.decided.items())
        if decided.selector is not None
        and promise(decided.selector.counts, target_error, confidence).threshold is not None
    )
    _, candidate = context.recommendation
    recommended = next(promising, None if candidate is None else candidate.num_samples)
    return Promotion(asked, activated, reason, improvement, recommended)


def held_out_improvement(
    calibration: Calibration, rival: Calibration | None, context: CrossValidated
) -> Improvement:
    """Return how much higher the calibration's held-out losses are than its rival's.

    rival: another calibration; None: raw scores.

    P(correct) of each row is predicted by a model fitted without the row's fold. Without a model, it is the
    share of right answers among the other rows.
    """
    method, of_rival = calibration.method, "active" if rival else "raw"
    judged = context.first_answers(calibration.num_samples)
    by = "evidence" if method == "evidence" else "depolarized"
    ours = [score.losses for score in judged.scored if score.map == by]
    theirs = None if rival is None else context.correct_by(rival)
    losses = judged.base if theirs is None else log_losses(theirs, judged.right)
    risks, gaps = context.fitted.risks, context.squared_gaps(method)
    over_base = [context.difference(losses, judged.base) for losses in ours]
    return Improvement(
        rival.id if rival else None,
        context.difference(risks[method], risks[of_rival]),
        context.difference(gaps, context.squared_gaps(of_rival)),
        context.difference(ours[0] if ours else judged.base, losses),
        informative=float(gaps.mean()) < context.constant_brier or any(gain.high < 0 for gain in over_base),
    )


def _doubts(num_full: int, right: NDArray[np.bool_]) -> list[str]:
    """Return reasons why a fit cannot be judged: too few full rows, or verdicts (n,) of one kind."""
    clauses = list[str]()
    if num_full < FEW_ROWS:
        more = f"{FEW_ROWS - num_full} more"
        clauses.append(f"{num_full} rows are too few to tell whether it is safe to use: label {more}")
    if right.all() or not right.any():
        which = "right" if right.all() else "wrong"
        clauses.append(f"all answers of its rows are {which}, so they show nothing about the other kind")
    return clauses


def _decide(
    calibration: Calibration,
    active: Calibration | None,
    option: ActivateOption,
    improvement: Improvement,
    *,
    has_evidence: bool,
    refused: int,
    num_rows: int,
    doubts: Sequence[str] = (),
) -> tuple[bool, str]:
    """Return True to activate, and the reason for the decision as a sentence.

    has_evidence: True if all rows have log-probabilities; refused: number of the `num_rows` rows that the
    LLM server refused; doubts: reasons why the rows are too poor to judge it by, as clauses.
    """
    activated, reason = option == "always", f"{'A' if option == 'always' else 'Not a'}ctivated as asked."
    if option == "if_better":
        against = [
            *vetoes(calibration, active, has_evidence),
            *improvement.shortcomings(),
            *doubts,
        ]
        activated = not against
        reason = f"Not activated: {'; '.join(against)}." if against else f"Activated: {_gain(improvement)}."
    if activated and refused > MAX_REFUSED_SHARE * num_rows:
        return False, (
            f"Not activated: the LLM server refused {refused} of {num_rows} rows, more than 2 %, and the "
            "others may be unlike your prompts. Retry the job to ask for the refused rows again, or activate "
            "the calibration yourself."
        )
    return activated, reason


def vetoes(calibration: Calibration, active: Calibration | None, has_evidence: bool) -> list[str]:
    """Return the reasons against activation that do not depend on held-out figures, as clauses."""
    if active is None:
        return []
    drawn = [selector for num_samples, selector in active.selectors.items() if num_samples]
    takes_evidence = active.evidence or any(selector.map_for(None) is None for selector in drawn)
    vetoes = [
        (calibration.num_samples < active.num_samples, _FEWER),
        # A lower risk on rows with too few verdicts is not worth the loss of P(correct).
        (bool(drawn) and not any(calibration.selectors), _SILENT),
        (0 in active.selectors and 0 not in calibration.selectors, _SILENT),
        (_has_own(active) and 0 in calibration.selectors and not _has_own(calibration), _NOT_OWN),
        # Rows without log-probabilities cannot judge the map that the active calibration serves with them.
        (takes_evidence and not has_evidence, _BLIND),
        (
            calibration.origin == active.origin == "both"
            and _num_counted(calibration) < _num_counted(active),
            _SMALLER,
        ),
        (bool(active.fingerprint.self_check) and not calibration.fingerprint.self_check, _UNCHECKED),
    ]
    return [reason for holds, reason in vetoes if holds]


def _has_own(calibration: Calibration) -> bool:
    """Return True if P(correct) without drawn answers is fitted on the calibration's own rows."""
    selector = calibration.selectors.get(0)
    return selector is not None and not selector.is_bundled and calibration.origin != "bundled"


def _num_counted(calibration: Calibration) -> int:
    return max((selector.counts.num_rows for selector in calibration.selectors.values()), default=0)


def _gain(improvement: Improvement) -> str:
    if improvement.has_bundled_prior and not improvement.better():
        return "its prior is the bundled calibration, and on held-out prompts it is not significantly worse"
    if improvement.against is None:
        return (
            "no calibration was active for this set-up, and on held-out prompts it is better than raw scores"
        )
    better = ", ".join(improvement.better())
    known = "the bundled calibration" if improvement.has_bundled_prior else "the active calibration"
    return f"on held-out prompts it is better than {known}, and not by chance ({better})"
