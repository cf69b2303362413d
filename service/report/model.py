"""The report of a calibration: exactly what is stored as JSON, served as JSON, and drawn as a page.

Numbers are floats; what cannot be computed (an AUROC of one class) is null, never NaN. Names of maps:
"raw" (no calibration), "temperature" (the paper's), "depolarized" (ours), "evidence" (ours, by the
log-probabilities of the answers; absent where rows have none), "active" (the calibration that was active for
the same fingerprint when this one was fitted; absent without one).
"""

import math
from typing import Literal, NotRequired, TypedDict

from service.calibration.calibration import ActivateOption, Method


class Estimate(TypedDict):
    """A figure with its 95 % interval (bootstrap over prompts); bounds null where none was computed."""

    value: float | None
    low: float | None
    high: float | None


class NullPart(TypedDict):
    """What a figure reads under calibration: mean and 95 % band over `draws` worlds.

    p_value: share of worlds that read as much as was observed, (1 + those) / (1 + draws). Null where the
    figure is. All null where there are too few rows.
    """

    mean: float | None
    low: float | None
    high: float | None
    p_value: float | None
    draws: int


class Bin(TypedDict):
    """One bin of a reliability diagram: [lower, upper], count, mean predicted and mean observed.

    band_low, band_high: where the observed mean lies under calibration (95 %), as the diagram's null has it.
    """

    lower: float
    upper: float
    count: int
    predicted: float
    observed: float
    band_low: float | None
    band_high: float | None


class EvidenceAt(TypedDict):
    """The evidence map served with this number of answers: T, and a and b of g = sigmoid(a + b logit u)."""

    num_samples: int
    temperature: float
    evidence_intercept: float
    evidence_slope: float


class CalibrationPart(TypedDict):
    """The calibration itself. `depolarization` is null for the method "temperature".

    For "evidence", `temperature` and `depolarization` are those of answers without log-probabilities, and
    `evidence` those of answers with them; else it is absent.
    """

    id: str
    name: str
    created_at: str
    method: Method
    temperature: float
    depolarization: float | None
    eps: float
    num_samples: int
    fingerprint: dict[str, object]
    evidence: NotRequired[EvidenceAt]


class RefusedRow(TypedDict):
    """A row that the LLM server refused for good, by its line in the file, and what it said."""

    line: int
    reason: str


class RefusedPart(TypedDict):
    """The rows that the LLM server refused while it answered others: how many, and the first of them."""

    count: int
    rows: list[RefusedRow]


class VerdictRow(TypedDict):
    """A row that was judged, and what was made of it: `Verdict`."""

    line: int
    id: str | None
    references: list[str]
    answer: str
    correct: bool
    why: Literal["given", "reference_contained", "rouge_l", "none"]
    rouge_l: float


class VerdictsPart(TypedDict):
    """The rows that were judged: how many there are, and the first of them."""

    count: int
    rows: list[VerdictRow]


class DataPart(TypedDict):
    """What it was fitted on.

    rows: in the file; usable: with a reference and two answers or more, one for each question; copies: those
    left out since another row asks the same; rows_full: those with `num_samples` answers, on which headline
    and evidence rest (the others serve smaller numbers of answers only).
    truncated, empty: shares of all answers. correct_from: who says what is right: the data, or the words:
    ROUGE-L above 0.3, or a reference in the answer. claims: of the full rows, where those are calibrated;
    accuracy is theirs then.
    """

    rows: int
    usable: int
    copies: int
    rows_full: int
    num_samples: int
    drawn_by: Literal["service", "caller"]
    answers: int
    distinct_mean: float
    truncated: float
    empty: float
    references_mean: float
    correct_from: Literal["data", "rouge_l", "mixed"]
    accuracy: float
    refused: RefusedPart
    claims: NotRequired[int]


class FitPart(TypedDict):
    """One map fitted on all full rows. Risks and entropies in nats, lower risk is better.

    cv_risk: mean out-of-fold risk; at_bound: parameters whose optimum sits on a bound; stationarity_gap: a
    check of convergence (about 0), not of calibration. depolarization: null for "temperature", and for
    "evidence", which has an intercept and a slope instead: g is each prompt's own.
    """

    temperature: Estimate
    depolarization: Estimate | None
    intercept: NotRequired[Estimate]
    slope: NotRequired[Estimate]
    risk: float
    cv_risk: float
    mean_entropy: float
    at_bound: list[str]
    stationarity_gap: float


class ParametersAt(TypedDict):
    """The parameters served with this number of answers, for "evidence" where they lack log-probabilities."""

    num_samples: int
    temperature: float
    depolarization: float | None


class ServedRow(TypedDict):
    """One map on prompts it was not fitted on (5 folds). Lower is better but for the AUROCs and the area.

    risk: nats; that of "raw" is charged with null eigenvalues of eps, since it gives them 0, which would make
    it infinite. auroc_*: right against wrong answers. rejection_area: area under the accuracy-rejection
    curve, higher is better.

    An ECE is above 0 under calibration, too: it counts by its null alone. projection_null: residuals of like
    prompts resampled. algorithm1_drawn: references drawn from the served spectrum; distance from it is
    mostly what no map of eigenvalues can mend. algorithm1_rescaled: real references with squared coordinates
    rescaled to the served spectrum; distance from it is the map's.
    cluster_sizes: of the clusters that Algorithm 1 used; singletons: prompts that it ignored.
    """

    map: str
    risk: float
    projection_ece: float
    projection_brier: float
    algorithm1_ece: float | None
    auroc_lambda_max: Estimate
    auroc_entropy: Estimate
    rejection_area: float | None
    mean_lambda_max: float
    mean_entropy: float
    projection_null: NullPart
    algorithm1_drawn: NullPart
    algorithm1_rescaled: NullPart
    cluster_sizes: list[int]
    singletons: int


class Decision(TypedDict):
    """Whether the calibration was activated, and why.

    against: id of the calibration that was active for the same fingerprint, null if none: then "raw".
    brier_difference: projection Brier on held-out rows minus that of `against`, paired by prompt; below 0:
    better. It needs no eps.
    difference: cross-validated risk minus that of `against` on the same rows, in nats; below 0: better.
    loss_difference: the same of the log loss of P(correct), in nats; without a model, of the base rate.
    """

    asked: ActivateOption
    activated: bool
    against: str | None
    brier_difference: Estimate
    difference: Estimate
    loss_difference: Estimate
    reason: str


class Now(TypedDict):
    """Whether the calibration is active at the time of asking, and since when."""

    active: bool
    activated_at: str | None


class TemperatureCurve(TypedDict):
    """Mean risk and mean entropy (full space, paper's map) against T; they meet at the optimum."""

    temperatures: list[float]
    risk: list[float]
    entropy: list[float]
    optimum: float


class RejectionCurve(TypedDict):
    """Accuracy of the answers kept when a share of the least certain ones is rejected."""

    map: str
    rejected: list[float]
    accuracy: list[float]


class Curves(TypedDict):
    """Everything that is drawn. Reliability diagrams are by map."""

    temperature: TemperatureCurve
    projection: dict[str, list[Bin]]
    algorithm1: dict[str, list[Bin]]
    correctness: dict[str, list[Bin]]
    rejection: list[RejectionCurve]


class AnswersRow(TypedDict):
    """One score with the first `num_samples` answers, on prompts that its fits have not seen (5 folds).

    score: "lambda_max" of a map, or "probability_correct", P(correct) with evidence ("evidence") or without
    ("depolarized"). tokens: completion tokens per question, null where they were not recorded.
    loss: nats, the matrix log risk or the log loss of the verdicts; loss_gap: minus that of the same score
    with all answers, on the same resamples; null for all answers themselves, and for 0 where the rows have no
    `answer`: then each first draw is judged, elsewhere the dominant answer. brier: the projection's, or that
    of the verdicts; auroc: right against wrong; half_error: share of wrong ones in the half of highest score.
    """

    num_samples: int
    score: Literal["lambda_max", "probability_correct"]
    map: str
    tokens: float | None
    loss: Estimate
    loss_gap: Estimate | None
    brier: Estimate
    auroc: Estimate
    half_error: Estimate


class AnswersPart(TypedDict):
    """How many answers to draw.

    recommended: the fewest answers within one standard error (paired) of the least loss, with the map
    `recommended_map`, by the log loss of P(correct); null where nothing can be recommended. recommendation:
    the same as a sentence, or why not.
    """

    recommendation: str
    recommended: int | None
    recommended_map: str | None
    rows: list[AnswersRow]


WhyNone = Literal["one_kind", "no_better_than_base_rate"]


class CorrectnessAt(TypedDict):
    """The model of P(correct) with this number of answers; each row is judged by one fitted without its fold.

    right, wrong: verdicts. features: those that the model takes; empty where there is none: why_none says
    why. log_loss (in nats), brier: lower is better, of the model and of the base rate, which says the same of
    every row; null where all verdicts are of one kind. auroc: right against wrong answers. promises:
    for each target error; lowest: for the lowest that can be promised, null where none can. Both empty where
    there is no model.
    """

    num_samples: int
    right: int
    wrong: int
    features: list[str]
    log_loss: float | None
    base_log_loss: float | None
    brier: float | None
    base_brier: float | None
    auroc: Estimate
    why_none: WhyNone | None
    promises: list["PromiseAt"]
    lowest: "PromiseAt | None"


class PromiseAt(TypedDict):
    """What can be promised for this target error: the share of wrong ones among the answers let through.

    threshold: on P(correct), null where the target cannot be promised; then lowest_error is the lowest that
    can be, null where none can. answered, wrong, coverage: of the rows counted that it lets through. text:
    the promise in words.
    """

    target_error: float
    threshold: float | None
    answered: int
    wrong: int
    coverage: float
    lowest_error: float | None
    text: str


class RiskAt(TypedDict):
    """One threshold: the share of the counted rows let through, of wrong ones among them, its upper bound."""

    threshold: float
    coverage: float
    error: float
    bound: float


class CorrectnessPart(TypedDict):
    """Whether an answer is right: P(correct) by number of answers, and what thresholds on it promise.

    diagram, risk_coverage, promises: with `num_samples` answers; empty where there is no model for them.
    confidence: of every promise and bound. diagram: of the rows that fitted, each predicted out of its fold.
    meaning: what every promise is about, in words.
    """

    num_samples: int
    confidence: float
    by_num_samples: list[CorrectnessAt]
    diagram: list[Bin]
    risk_coverage: list[RiskAt]
    promises: list[PromiseAt]
    meaning: str


class Opening(TypedDict):
    """What an operator wants to know first, in words, for the target error of the settings.

    safe: whether it is safe to use, and for what; promise: what it promises; answers: how many answers to
    draw for that. num_samples: that number, null where none is recommended.
    """

    safe: str
    promise: str
    answers: str
    num_samples: int | None


class PlainWarning(TypedDict):
    """A stable code and a sentence in plain words."""

    code: str
    text: str


class Figures(TypedDict):
    """What a report and an evaluation have alike: the maps as fitted, and what they do to other prompts.

    fits: every map; unfitted: why a map could not be fitted, by name. served: one row per map, raw first.
    answers: figures by number of answers.
    """

    fits: dict[str, FitPart]
    unfitted: dict[str, str]
    served: list[ServedRow]
    curves: Curves
    answers: AnswersPart


class Report(Figures):
    """The whole report of a calibration.

    evidence_parameters: of every number of answers from 1, for the method "evidence" alone.
    correctness: whether answers are right.
    now, verdicts: added when it is sent; all else is as it was when the calibration was made. verdicts: null
    once its rows are forgotten.
    """

    version: Literal[1]
    opening: Opening
    calibration: CalibrationPart
    data: DataPart
    parameters: list[ParametersAt]
    evidence_parameters: NotRequired[list[EvidenceAt]]
    decision: Decision
    correctness: CorrectnessPart
    warnings: list[PlainWarning]
    job_id: NotRequired[str]
    now: NotRequired[Now]
    verdicts: NotRequired[VerdictsPart | None]


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinities: JSON has neither."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, low: float = math.nan, high: float = math.nan) -> Estimate:
    """Return a figure with its interval."""
    return {"value": finite(value), "low": finite(low), "high": finite(high)}
