"""What a reader needs before any figure: the three lines that a report opens with, and its warnings.

A warning is data: a stable code and a sentence in plain words.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from service.calibration.promotion import Gains
from service.calibration.rows import FEW_ROWS, Verdict
from service.report.model import (
    AnswersPart,
    CalibrationPart,
    CorrectnessPart,
    DataPart,
    Opening,
    PlainWarning,
    ServedRow,
)
from service.report.words import MAPS, MISSING, between, count, judgment, number, off, p_words
from service.scoring.judging import percent
from service.spectral.evidence import EvidenceFit
from service.spectral.fit import DepolarizedFit, TemperatureFit
from service.spectral.text_scores import too_long

MAX_USELESS = 0.05  # share of truncated or empty answers without a warning
CONVERGED = 1e-4  # nats; a fit that has converged is within about 1e-6 (method, section 3)
FEW_OF_A_KIND = 20  # right or wrong answers: with as many, an AUROC has a standard error of about 0.07
SHORT_REFERENCES = (
    "answers judged by their words are so much longer than their references that a right one is known only "
    "by a reference that stands in it, word for word. Look at the verdicts, or give your own (`correct`)."
)
RESTS = "AUROC, rejection, the correctness diagram and P(correct), if there is one, rest"

Bools = NDArray[np.bool_]


def opening(
    calibration: CalibrationPart,
    data: DataPart,
    served: list[ServedRow],
    correctness: CorrectnessPart,
    answers: AnswersPart,
    target_error: float,
) -> Opening:
    """Return the lines, for an operator who means to keep this error among the answers let through."""
    rows = correctness["by_num_samples"]
    kept = [
        (row["num_samples"], one)
        for row in rows
        for one in row["promises"]
        if one["target_error"] == target_error and one["threshold"] is not None
    ]
    lowest = [(row["lowest"]["target_error"], row["num_samples"]) for row in rows if row["lowest"]]
    # How many answers to draw does not hang on an error that nobody asked for.
    num_samples, enough = answers["recommended"], answers["recommendation"]
    if kept:
        num_samples, one = kept[0]  # rows are by number of answers, fewest first
        promise = f"{one['text']} It lets {one['coverage']:.0%} of such questions through."
        enough = f"{_drawn(num_samples)}: the fewest that reach this promise."
    elif lowest:
        error, at = min(lowest)
        promise = (
            f"Nothing at {percent(target_error)}: such an error among the answers let through cannot be "
            f"promised; the lowest that can be is {percent(error)}, by {_drawn(at)}."
        )
    else:
        promise = "Nothing: no number of answers allows a promise, so no answer is let through by a decision."
    safe = _safe(calibration, data, served)
    if not any(row["promises"] for row in rows):
        safe += " It measures how far answers agree, not whether one is right."
    return {"safe": safe, "promise": promise, "answers": enough, "num_samples": num_samples}


def _drawn(num_samples: int) -> str:
    return count(num_samples, "answer") if num_samples else "0 answers (effort none)"


def _safe(calibration: CalibrationPart, data: DataPart, served: list[ServedRow]) -> str:
    rows = {row["map"]: row for row in served}
    raw, ours = rows["raw"], rows[calibration["method"]]
    p_value = ours["projection_null"]["p_value"]
    gap = f"{ours['projection_ece']:.2f} off on average"
    like = f"for questions like its {data['rows_full']} rows, asked and answered in the set-up below"
    if data["rows_full"] < FEW_ROWS and not off(p_value):
        few = f"Its {data['rows_full']} rows are too few to tell whether it is safe to use"
        return f"{few}: no miscalibration was detected, and less than a large one would not be."
    if not off(p_value):
        return f"Safe to use {like}: no miscalibration was detected."
    if ours["projection_ece"] < raw["projection_ece"]:
        raw_off = f"{raw['projection_ece']:.2f}"
        return f"To be used with care {like}: the confidence is {gap}, where raw scores are {raw_off} off."
    return f"Not safe to use: on questions held out the confidence is {gap}, no less than raw scores."


def in_short(served: Sequence[ServedRow], method: str) -> Iterator[str]:
    """Yield what changes from raw scores to those of a map, on prompts that it was not fitted on."""
    rows = {row["map"]: row for row in served}
    raw, ours = rows["raw"], rows[method]
    before, after = number(raw["projection_ece"]), number(ours["projection_ece"])
    verb = "falls" if ours["projection_ece"] < raw["projection_ece"] else "rises"
    change = f"stays at {after}" if before == after else f"{verb} from {before} to {after}"
    yield f"Against raw scores, the gap between what λmax says and what is found (projection ECE) {change}."
    null = ours["projection_null"]
    read = f"Calibrated scores would read {between(null) or MISSING} on these prompts"
    yield f"{read} ({p_words(null['p_value'])}): {MAPS[method]} {judgment(null['p_value'])}."
    ranked = [row["auroc_lambda_max"]["value"] for row in (raw, ours)]
    if None in ranked:
        yield "How well λmax tells right from wrong answers cannot be computed: there is one kind only."
    else:
        yield (
            "How well λmax tells right from wrong answers (AUROC; 0.5 is chance) goes from "
            f"{number(ranked[0])} to {number(ranked[1])}. Calibration is about what the numbers mean; "
            "it is not meant to improve this."
        )


def caution(code: str, text: str) -> PlainWarning:
    """Return a warning."""
    return {"code": code, "text": text}


def few_of_a_kind(right: Bools, of_file: str = "", rests: str = RESTS) -> Iterator[PlainWarning]:
    """Yield a warning for few right answers, and for few wrong ones, of (n,).

    None for a kind that is not there at all: then there is no AUROC to warn of. of_file: such as " of the dev
    file", where there are several; rests: what rests on these answers, with its verb.
    """
    counts = {"right": int(right.sum()), "wrong": int(right.size - right.sum())}
    for kind, known in counts.items():
        if 0 < known < FEW_OF_A_KIND and known < right.size:
            text = f"Only {known} of {right.size} answers{of_file} are {kind}: {rests} on these few."
            yield caution(f"few_{kind}", text)


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
    if copies := data["copies"]:
        text = f"{copies} rows ask what another row asks: of each question one row counts."
        yield caution("copies", text)
    if data["rows"] > usable + copies:
        text = f"{data['rows'] - usable - copies} rows have no reference or fewer than two answers: left out."
        yield caution("unusable_rows", text)
    if refused := data["refused"]["count"]:
        were = "1 row was" if refused == 1 else f"{refused} rows were"
        text = f"{were} refused by the LLM server while it answered others; they are listed by line."
        yield caution("refused_rows", text)
    if right.all() or not right.any():
        which = "right" if right.all() else "wrong"
        yield caution("one_class", f"All answers are {which}: AUROC cannot be computed.")
    yield from few_of_a_kind(right)
    if data["truncated"] > MAX_USELESS:
        yield caution("truncated", f"{data['truncated']:.0%} of the answers were cut by max_tokens.")
    if data["empty"] > MAX_USELESS:
        yield caution("empty", f"{data['empty']:.0%} of the answers are empty; they count as one meaning.")


def about_verdicts(
    verdicts: Sequence[Verdict], references: Sequence[Sequence[str]]
) -> Iterator[PlainWarning]:
    """Yield a warning where most verdicts by words are on answers too long for their references."""
    by_words = [pair for pair in zip(verdicts, references, strict=True) if pair[0].why != "given"]
    long = sum(too_long(verdict.answer, of) for verdict, of in by_words)
    if long > len(by_words) / 2:
        yield caution("short_references", f"{long} of {len(by_words)} {SHORT_REFERENCES}")


def about_fit(fit: TemperatureFit | DepolarizedFit | EvidenceFit) -> Iterator[PlainWarning]:
    """Yield warnings of parameters on a bound, or of a search that has not converged."""
    for name in fit.at_bound:
        text = f"The best {name} sits on the bound of the search: the data do not pin it down."
        yield caution("at_bound", text)
    if not fit.at_bound and fit.stationarity_gap > CONVERGED:
        text = f"The search stopped {fit.stationarity_gap:.1e} from a stationary point."
        yield caution("not_converged", text)


def about_gain(gains: Gains) -> Iterator[PlainWarning]:
    """Yield a warning where held-out rows show no gain, or one that may be chance, whatever was asked."""
    if why := gains.shortcomings():
        yield caution("not_better", f"{why[0][0].upper()}{why[0][1:]}.")
        return
    # An active calibration is beaten beyond chance or not at all.
    if gains.against is None and max(gains.risk.high, gains.brier.high) >= 0:
        yield caution("gain_unsure", "Its gain over raw scores may be chance: the interval reaches 0.")
