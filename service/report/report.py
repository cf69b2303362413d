"""A calibration and the fits that it was chosen from, in the shape of its report."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import NEEDED_OF_A_KIND, PROMISE_MEANING, Calibration
from service.calibration.fitting import DecidedAt, EvidenceFound, Fitted, Stream, rng, why_no_evidence
from service.calibration.labels import Labels
from service.calibration.material import Material
from service.calibration.promotion import decide, shortcomings, too_many_refused
from service.jobs.model import FEW_ROWS, CalibrateOptions, Verdict
from service.jobs.store import StoredRow
from service.report.bench import Bench, HeldOut, make_split
from service.report.figures import (
    algorithm1_diagram,
    answers,
    convergence,
    correctness,
    diagram_rows,
    projection,
    rejection,
    side_by_side,
    temperature,
)
from service.report.model import (
    AnswersPart,
    AnswersRow,
    Bin,
    CalibrationPart,
    CorrectnessAt,
    CorrectnessPart,
    Curves,
    DataPart,
    Decision,
    Estimate,
    EvidenceAt,
    Experiment,
    FitPart,
    Opening,
    ParametersAt,
    PlainWarning,
    PromiseAt,
    RejectionCurve,
    Report,
    RiskAt,
    SamplesAt,
    ServedRow,
    TableRow,
    TemperatureCurve,
    estimate,
)
from service.scoring.judging import lowest_named, percent
from service.scoring.score import Target
from service.spectral.correctness import bootstrap_auroc
from service.spectral.correctness_model import CorrectnessFit, Scores
from service.spectral.evidence import EvidenceFit
from service.spectral.fit import Bootstrap, DepolarizedFit, TemperatureFit
from service.spectral.fit import Method as PlainMethod
from service.spectral.reliability import label_band, reliability_diagram
from service.spectral.resampling import DEFAULT, Interval, Resamples
from service.spectral.selective import Promise, SelectiveCounts, error_bound, promises
from service.spectral.text_scores import too_long


def calibration_part(calibration: Calibration) -> CalibrationPart:
    """Return the calibration itself, with its headline parameters."""
    headline, table = calibration.headline(), evidence_table(calibration)
    part: CalibrationPart = {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": None if calibration.method == "temperature" else headline.depolarization,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": dict(calibration.fingerprint.shown()),
    }
    return {**part, "evidence": table[-1]} if table else part


def evidence_table(calibration: Calibration) -> list[EvidenceAt]:
    """Return the evidence map of every number of answers; nothing for other methods."""
    return [
        {
            "num_samples": m,
            "temperature": found.temperature,
            "evidence_intercept": found.intercept,
            "evidence_slope": found.slope,
        }
        for m, found in sorted(calibration.evidence.items())
    ]


def parameters_part(calibration: Calibration) -> list[ParametersAt]:
    """Return the parameters of every number of answers that need no log-probabilities."""
    depolarized = calibration.method != "temperature"
    return [
        {
            "num_samples": m,
            "temperature": p.temperature,
            "depolarization": p.depolarization if depolarized else None,
        }
        for m, p in sorted(calibration.parameters.items())
    ]


def chosen_fit(fitted: Fitted) -> TemperatureFit | DepolarizedFit | EvidenceFit:
    """Return the fit of the map that was chosen."""
    if fitted.method != "evidence":
        return fitted.fits[fitted.method]
    assert fitted.evidence is not None
    return fitted.evidence.fit


def fit_parts(fitted: Fitted) -> dict[str, FitPart]:
    """Return every map as fitted, by name, with its intervals and its cross-validated risk."""
    parts: dict[str, FitPart] = {method: _fit(fitted, method) for method in fitted.fits}
    if fitted.evidence is not None:
        parts["evidence"] = _evidence_fit(fitted.evidence)
    return parts


def _evidence_fit(evidence: EvidenceFound) -> FitPart:
    found, spread = evidence.fit, evidence.bootstrap
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
        "depolarization": None,
        "intercept": _estimate(found.map.intercept, spread.intercept),
        "slope": _estimate(found.map.slope, spread.slope),
        "risk": found.risk,
        "cv_risk": float(evidence.risks["evidence"].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _estimate(value: float, spread: Interval) -> Estimate:
    return estimate(value, spread.low, spread.high)


def _fit(fitted: Fitted, method: PlainMethod) -> FitPart:
    found = fitted.fits[method]
    spread = fitted.bootstraps[method]
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
        "depolarization": _depolarization(found, spread),
        "risk": found.risk,
        "cv_risk": float(fitted.held_out.risks[method].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _depolarization(found: TemperatureFit | DepolarizedFit, spread: Bootstrap) -> Estimate | None:
    if isinstance(found, TemperatureFit) or spread.depolarization is None:
        return None
    return _estimate(found.map.depolarization, spread.depolarization)


# P(correct) and what thresholds on it promise, in the shape of a report.

TARGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
LESS_THAN_ANY = 1e-9  # error; a bound so low takes a billion rows


def correctness_part(
    fitted: Fitted, num_samples: int, seed: int, target: Target, resamples: Resamples = DEFAULT
) -> CorrectnessPart:
    """Return whether answers are right, for a calibration of so many answers. Blocking: a second.

    target: what decisions keep by default, and so one of the promises.
    """
    at = fitted.decided.at
    whole = at[num_samples]
    # The same for every number, so that a table can hold them.
    wanted = sorted({*targets(1 - float(whole.fitted.mean())), target.error})
    sure = target.confidence
    return {
        "num_samples": num_samples,
        "confidence": sure,
        "by_num_samples": [_at(m, one, wanted, sure, seed, resamples) for m, one in sorted(at.items())],
        "diagram": _diagram(whole, seed, resamples),
        "risk_coverage": risk_coverage(whole.decider.counts, sure) if whole.decider else [],
        "promises": promises_part(whole.decider.counts, wanted, sure) if whole.decider else [],
        "meaning": PROMISE_MEANING,
    }


def targets(base_error: float) -> list[float]:
    """Return the target errors of a table; the base rate's error is one where it is above the others.

    base_error: of rows that are not counted: a target must not depend on those.
    """
    rounded = round(base_error, 2)
    return [*TARGETS, *([rounded] if TARGETS[-1] < rounded < 1 else [])]


def _at(
    num_samples: int, one: DecidedAt, wanted: list[float], sure: float, seed: int, resamples: Resamples
) -> CorrectnessAt:
    best, base = _best(one.fit), one.fit.base_rate
    counts = None if one.decider is None else one.decider.counts
    return {
        "num_samples": num_samples,
        "fitted_right": one.fit.num_right,
        "fitted_wrong": one.fit.num_wrong,
        "counted_right": int(one.counted.sum()),
        "counted_wrong": int((~one.counted).sum()),
        "features": list(one.fit.model.features) if one.fit.model else [],
        "log_loss": best.log_loss if best else None,
        "base_log_loss": base.log_loss if base else None,
        "brier": best.brier if best else None,
        "base_brier": base.brier if base else None,
        "auroc": _auroc(one, seed, resamples.auroc),
        "why_none": one.fit.why_none,
        "promises": promises_part(counts, wanted, sure) if counts else [],
        "lowest": lowest_part(counts, sure) if counts else None,
    }


def _best(fit: CorrectnessFit) -> Scores | None:
    """Return the scores of the features that were chosen, or would have been; None where none were tried."""
    return min(fit.candidates, key=lambda one: one.log_loss, default=None)


def _auroc(one: DecidedAt, seed: int, resamples: int) -> Estimate:
    if one.fit.held_out is None:
        return estimate(math.nan)
    found = bootstrap_auroc(one.fit.held_out, one.fitted, rng(seed, Stream.AUROC), num_resamples=resamples)
    return estimate(found.value, found.low, found.high)


def _diagram(one: DecidedAt, seed: int, resamples: Resamples) -> list[Bin]:
    """Return the reliability diagram of P(correct), each row predicted by the model of the other folds."""
    predicted = one.fit.held_out
    if one.decider is None or predicted is None:
        return []
    found, band = (
        reliability_diagram(predicted, one.fitted),
        label_band(predicted, rng(seed, Stream.CORRECTNESS), num_draws=resamples.band),
    )
    rows = diagram_rows("", found, one.fitted.size, band)
    return [cast("Bin", {name: row[name] for name in Bin.__annotations__}) for row in rows]


def risk_coverage(counts: SelectiveCounts, confidence: float) -> list[RiskAt]:
    """Return the error among the answers let through by threshold, strictest first, with its exact bound."""
    bounds = error_bound(counts.wrong, counts.answered, confidence)
    rows = zip(counts.thresholds, counts.answered, counts.wrong, bounds, strict=True)
    return [
        {
            "threshold": threshold,
            "coverage": answered / counts.num_rows,
            "error": wrong / answered,
            "bound": float(bound),
        }
        for threshold, answered, wrong, bound in rows
    ]


def promises_part(counts: SelectiveCounts, wanted: list[float], confidence: float) -> list[PromiseAt]:
    """Return what can be promised for each target error, in numbers and in words."""
    return [
        {
            "target_error": one.target_error,
            "threshold": one.threshold,
            "answered": one.answered,
            "wrong": one.wrong,
            "coverage": one.coverage,
            "lowest_error": one.lowest_error,
            "text": in_words(one),
        }
        for one in promises(counts, wanted, confidence)
    ]


def lowest_part(counts: SelectiveCounts, confidence: float) -> PromiseAt | None:
    """Return what the lowest error lets through that can be promised at all; None where none can."""
    # No rows promise so little, which makes the promise name the lowest that they do.
    [found] = promises(counts, [LESS_THAN_ANY], confidence)
    lowest = lowest_named(counts, found)
    return None if lowest is None else promises_part(counts, [lowest], confidence)[0]


def in_words(promise: Promise) -> str:
    """Return the promise as a sentence, or that it cannot be made, and which can."""
    sure = f"with {promise.confidence:.0%} confidence".replace("%", " %")
    like = "on questions like those of the dev set"
    if promise.threshold is not None:
        most = f"at most {percent(promise.target_error)} of the answers let through are wrong"
        return f"{sure.capitalize()}, {most}, {like}."
    if promise.lowest_error is None:
        return f"No error can be promised {sure}: these rows are too few."
    wanted, lowest = percent(promise.target_error), percent(promise.lowest_error)
    return f"An error of at most {wanted} cannot be promised {sure}; the lowest that can be is {lowest}."


# The three lines that a report opens with: is it safe to use, what does it promise, how many answers.

LEVEL = 0.05  # of the null of the projection ECE


def opening(
    calibration: CalibrationPart,
    data: DataPart,
    served: list[ServedRow],
    correctness: CorrectnessPart,
    answers: AnswersPart,
    target_error: float,
) -> Opening:
    """Return the lines, for an operator who means to keep this error among the answers let through."""
    reached = _fewest(correctness, target_error)
    lowest = _lowest(correctness)
    number = reached[0] if reached else lowest[1] if lowest else answers["recommended"]
    return {
        "safe": _safe(calibration, data, served) + _undecided(correctness),
        "promise": _promise(reached, lowest, target_error),
        "answers": _answers(number, reached, lowest, answers),
        "num_samples": number,
    }


def _safe(calibration: CalibrationPart, data: DataPart, served: list[ServedRow]) -> str:
    rows = {row["map"]: row for row in served}
    raw, ours = rows["raw"], rows[calibration["method"]]
    p_value = ours["projection_null"]["p_value"]
    off = f"{ours['projection_ece']:.2f} off on average"
    like = f"for questions like its {data['rows_full']} rows, asked and answered in the set-up below"
    if p_value is None or p_value > LEVEL:
        return f"Safe to use {like}: no miscalibration was detected."
    if ours["projection_ece"] < raw["projection_ece"]:
        raw_off = f"{raw['projection_ece']:.2f}"
        return f"To be used with care {like}: the confidence is {off}, where raw scores are {raw_off} off."
    return f"Not safe to use: on questions held out the confidence is {off}, no less than raw scores."


def _fewest(part: CorrectnessPart, target_error: float) -> tuple[int, PromiseAt] | None:
    """Return the fewest answers that reach the promise, and what it then is."""
    for row in part["by_num_samples"]:
        for one in row["promises"]:
            if one["target_error"] == target_error and one["threshold"] is not None:
                return row["num_samples"], one
    return None


def _lowest(part: CorrectnessPart) -> tuple[float, int] | None:
    """Return the lowest error that can be promised, and the fewest answers that reach it."""
    rows = part["by_num_samples"]
    every = [(row["lowest"]["target_error"], row["num_samples"]) for row in rows if row["lowest"]]
    return min(every, default=None)


def _undecided(part: CorrectnessPart) -> str:
    if any(row["promises"] for row in part["by_num_samples"]):
        return ""
    return " It tells how far answers agree, and cannot tell whether one is right."


def _promise(
    reached: tuple[int, PromiseAt] | None, lowest: tuple[float, int] | None, target_error: float
) -> str:
    if reached:
        return f"{reached[1]['text']} It lets {reached[1]['coverage']:.0%} of such questions through."
    if lowest is None:
        return "Nothing: no number of answers allows a promise, so no answer is let through by a decision."
    return (
        f"Nothing at {percent(target_error)}: such an error among the answers let through cannot be "
        f"promised; the lowest that can be is {percent(lowest[0])}."
    )


def _answers(
    number: int | None,
    reached: tuple[int, PromiseAt] | None,
    lowest: tuple[float, int] | None,
    answers: AnswersPart,
) -> str:
    told = f"{number} {'answer' if number == 1 else 'answers'}"
    if reached:
        return f"{told}: the fewest that reach this promise."
    if lowest:
        return f"{told}: the fewest that reach {percent(lowest[0])}."
    return answers["recommendation"]


# What to know before figures are believed, as data: a stable code and a sentence in plain words.

MANY = 0.05  # share of truncated or empty answers that is worth a warning
CONVERGED = 1e-4  # nats; a fit that has converged is within about 1e-6 (method, section 3)
# Two tests per pair of files: at this level one pair in fifty that is alike is called different.
DIFFERENT = 0.01
ENOUGH = f"A file should have at least {NEEDED_OF_A_KIND} right answers and {NEEDED_OF_A_KIND} wrong ones."
SHORT_REFERENCES = (
    "answers judged by their words are so much longer than their references that a right one is known only "
    "by a reference that stands in it, word for word. Look at the verdicts, or give your own (`correct`)."
)
RESTS = "AUROC, rejection, the correctness diagram and P(correct), if there is one, rest"

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def caution(code: str, text: str) -> PlainWarning:
    """Return a warning."""
    return {"code": code, "text": text}


def few_of_a_kind(right: Bools, of_file: str = "", rests: str = RESTS) -> Iterator[PlainWarning]:
    """Yield a warning for fewer right answers than P(correct) needs, and for fewer wrong ones, of (n,).

    None for a kind that is not there at all: then there is no AUROC to warn of. of_file: such as " of the dev
    file", where there are several; rests: what rests on these answers, with its verb.
    """
    counts = {"right": int(right.sum()), "wrong": int(right.size - right.sum())}
    for kind, count in counts.items():
        if 0 < count < NEEDED_OF_A_KIND and count < right.size:
            text = f"Only {count} of {right.size} answers{of_file} are {kind}: {rests} on these few. {ENOUGH}"
            yield caution(f"few_{kind}", text)


def files_differ(accuracy: tuple[Bools, Bools], lambda_max: tuple[Floats, Floats]) -> Iterator[PlainWarning]:
    """Yield a warning where dev and test differ in accuracy (Fisher), or in mean raw lambda_max (Welch).

    accuracy: right or wrong, lambda_max: in [0, 1], each of the dev (n,) and the test prompts (k,).
    """
    found = (
        ("accuracy", "share of right answers", accuracy, _fisher(*accuracy)),
        ("lambda_max", "mean raw lambda_max", lambda_max, _welch(*lambda_max)),
    )
    for name, words, (dev, test), p_value in found:
        if p_value < DIFFERENT:
            text = (
                f"Dev and test are not alike: {words} {dev.mean():.3f} against {test.mean():.3f} "
                f"(p = {p_value:.1g}). A map fitted on one kind of prompt need not fit the other."
            )
            yield caution(f"files_differ_{name}", text)


def _fisher(dev: Bools, test: Bools) -> float:
    from scipy.stats import fisher_exact

    table = np.array([[one.sum(), one.size - one.sum()] for one in (dev, test)])
    return float(fisher_exact(table).pvalue)  # exact: right answers may be a handful


def _welch(dev: Floats, test: Floats) -> float:
    """Return the p-value of equal means; 1 where there is no spread to compare by."""
    from scipy.stats import ttest_ind

    if min(dev.size, test.size) < 2 or np.ptp(dev) == 0 == np.ptp(test):
        return 1.0
    # Welch: the two files need not spread alike.
    return float(ttest_ind(dev, test, equal_var=False).pvalue)


def about_data(data: DataPart, right: Bools) -> Iterator[PlainWarning]:
    """Yield warnings of few, short or useless rows, of labels (n,) of one kind, of answers cut or empty."""
    full, usable = data["rows_full"], data["usable"]
    if full < FEW_ROWS:
        yield caution(
            "few_rows",
            f"Only {full} rows: intervals are wide, unlike prompts go unnoticed. Use at least {FEW_ROWS}.",
        )
    if usable > full:
        fewer = f"have fewer than {data['num_samples']} answers"
        text = f"{usable - full} rows {fewer}: left out of the headline fit."
        yield caution("short_rows", text)
    if copies := data.get("copies", 0):
        text = f"{copies} rows ask what another row asks: of each question one row counts."
        yield caution("copies", text)
    if data["rows"] > usable + copies:
        text = f"{data['rows'] - usable - copies} rows have no reference or fewer than two answers: left out."
        yield caution("unusable_rows", text)
    if refused := data.get("refused", {"count": 0})["count"]:
        were = "1 row was" if refused == 1 else f"{refused} rows were"
        text = f"{were} refused by the LLM server while it answered others; they are listed by line."
        yield caution("refused_rows", text)
    if right.all() or not right.any():
        which = "right" if right.all() else "wrong"
        yield caution("one_class", f"All answers are {which}: AUROC cannot be computed.")
    yield from few_of_a_kind(right)
    if data["truncated"] > MANY:
        yield caution("truncated", f"{data['truncated']:.0%} of the answers were cut by max_tokens.")
    if data["empty"] > MANY:
        yield caution("empty", f"{data['empty']:.0%} of the answers are empty; they count as one meaning.")


def about_verdicts(
    verdicts: Sequence[Verdict], references: Sequence[Sequence[str]]
) -> Iterator[PlainWarning]:
    """Yield a warning where most verdicts by words are on answers too long for their references."""
    by_words = [pair for pair in zip(verdicts, references, strict=True) if pair[0].why != "given"]
    long = sum(too_long(verdict.answer, of) for verdict, of in by_words)
    if long > len(by_words) / 2:
        yield caution("short_references", f"{long} of {len(by_words)} {SHORT_REFERENCES}")


def about_fit(found: TemperatureFit | DepolarizedFit | EvidenceFit) -> Iterator[PlainWarning]:
    """Yield warnings of parameters on a bound, or of a search that has not converged."""
    for name in found.at_bound:
        text = f"The best {name} sits on the bound of the search: the data do not pin it down."
        yield caution("at_bound", text)
    if not found.at_bound and found.stationarity_gap > CONVERGED:
        text = f"The search stopped {found.stationarity_gap:.1e} from a stationary point."
        yield caution("not_converged", text)


def about_gain(decision: Decision) -> Iterator[PlainWarning]:
    """Yield a warning where held-out rows show no gain, or one that may be chance, whatever was asked."""
    if why := shortcomings(decision):
        yield caution("not_better", f"{why[0][0].upper()}{why[0][1:]}.")
        return
    figures = (decision["difference"], decision["brier_difference"])
    # An active calibration is beaten beyond chance or not at all.
    if decision["against"] is None and any(gap["high"] is not None and gap["high"] >= 0 for gap in figures):
        yield caution("gain_unsure", "Its gain over raw scores may be chance: the interval reaches 0.")


# The report of a fit: a selection of the study's experiments on its own rows, each held out.

MAX_REFUSED = 50  # listed; all are counted
Shape = TypeVar("Shape")  # of a row as a report has it


@dataclass(frozen=True, slots=True, eq=False)
class FinishedFit:
    """Everything a finished fit is about.

    target: what decisions keep where nobody names another; copies: rows left out since another asks the same.
    """

    calibration: Calibration
    options: CalibrateOptions
    material: Material
    fitted: Fitted
    active: Calibration | None
    num_rows: int
    target: Target
    copies: int = 0
    refused: Sequence[StoredRow] = ()


def make_report(outcome: FinishedFit, resamples: Resamples = DEFAULT) -> Report:
    """Return the report. Blocking: seconds."""
    rows = make_split(outcome.material, outcome.fitted.dev)
    bench = HeldOut(
        rows, outcome.fitted, seed=outcome.options.seed, eps=outcome.calibration.eps, resamples=resamples
    )
    data, calibration = _data(outcome, rows.labels), outcome.calibration
    decision = decide(calibration, outcome.active, outcome.options.activate, bench)
    veto = too_many_refused(len(outcome.refused), outcome.num_rows)
    if decision["activated"] and veto:
        decision |= {"activated": False, "reason": veto}
    judged = [outcome.material.rows[i] for i in outcome.material.full]
    part, served = calibration_part(calibration), side_by_side(bench)
    worth = _answers_part(answers(bench))
    right = correctness_part(
        outcome.fitted, calibration.num_samples, outcome.options.seed, outcome.target, resamples
    )
    report: Report = {
        "version": 1,
        "opening": opening(part, data, served, right, worth, outcome.target.error),
        "calibration": part,
        "data": data,
        "fits": fit_parts(outcome.fitted),
        "unfitted": {"evidence": why} if (why := why_no_evidence(outcome.material)) else {},
        "parameters": parameters_part(calibration),
        "served": served,
        "decision": decision,
        "curves": curves(bench),
        "answers": worth,
        "correctness": right,
        "warnings": [
            *about_data(data, rows.labels.right),
            *about_verdicts(rows.labels.verdicts, [row.row.references for row in judged]),
            *about_fit(chosen_fit(outcome.fitted)),
            *about_gain(decision),
        ],
    }
    table = evidence_table(calibration)
    return {**report, "evidence_parameters": table} if table else report


def curves(bench: Bench) -> Curves:
    """Return the tables of those experiments that a report draws, in its own shape."""
    return {
        "temperature": _temperature(temperature(bench)),
        "projection": _bins(projection(bench), bench.served),
        "algorithm1": _bins(algorithm1_diagram(bench), bench.served),
        "correctness": _bins(correctness(bench), bench.served),
        "rejection": _rejection(rejection(bench), bench.served),
        "samples": [_of_shape(SamplesAt, row) for row in convergence(bench)["points"]],
    }


def _answers_part(experiment: Experiment) -> AnswersPart:
    told = experiment["headline"]
    names = AnswersPart.__annotations__.keys() - {"rows"}
    rows = [_of_shape(AnswersRow, row) for row in experiment["points"]]
    return cast("AnswersPart", {**{name: told[name] for name in sorted(names)}, "rows": rows})


def _number(row: TableRow, name: str) -> float:
    """Return a figure of an experiment that is known wherever the experiment ran."""
    value = row[name]
    assert isinstance(value, float | int), name
    return value


def _column(rows: Iterable[TableRow], name: str) -> list[float]:
    return [_number(row, name) for row in rows]


def _temperature(experiment: Experiment) -> TemperatureCurve:
    rows = experiment["points"]
    return {
        "temperatures": _column(rows, "temperature"),
        "risk": _column(rows, "dev_risk"),
        "entropy": _column(rows, "dev_entropy"),
        "optimum": _number(experiment["headline"], "temperature"),
    }


def _bins(experiment: Experiment, maps: Iterable[str]) -> dict[str, list[Bin]]:
    """Return by map the bins that have a target; none of a map where the experiment did not run."""
    known = [row for row in experiment["points"] if row["observed"] is not None]
    return {name: [_of_shape(Bin, row) for row in known if row["map"] == name] for name in maps}


def _of_shape(shape: type[Shape], row: TableRow) -> Shape:
    """Return the columns of a row that the report has, under their names."""
    # Experiments may gain columns: a report is a contract, and keeps to its own.
    return cast("Shape", {name: row[name] for name in shape.__annotations__})


def _rejection(experiment: Experiment, maps: Iterable[str]) -> list[RejectionCurve]:
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    by_map = {name: [row for row in rows if row["map"] == name] for name in maps}
    return [
        {"map": name, "rejected": _column(mine, "rejected"), "accuracy": _column(mine, "accuracy")}
        for name, mine in by_map.items()
    ]


def _data(outcome: FinishedFit, labels: Labels) -> DataPart:
    material = outcome.material
    draws = [draw for row in material.rows for draw in row.draws]
    return {
        "rows": outcome.num_rows,
        "usable": len(material.rows),
        "copies": outcome.copies,
        "rows_full": int(material.full.size),
        "num_samples": material.num_samples,
        "drawn_by": "service" if outcome.calibration.fingerprint.source == "service" else "caller",
        "answers": len(draws),
        "distinct_mean": float(np.mean([len(texts) for texts in material.texts])),
        "truncated": sum(d.truncated for d in draws) / len(draws),
        "empty": sum(not d.text for d in draws) / len(draws),
        "references_mean": float(np.mean([len(one.row.references) for one in material.rows])),
        "correct_from": labels.source,
        "accuracy": float(labels.right.mean()),
        "refused": {
            "count": len(outcome.refused),
            "rows": [
                {"line": one.row.line, "reason": one.refused or ""} for one in outcome.refused[:MAX_REFUSED]
            ],
        },
    }
