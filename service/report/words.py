"""Text of the reports: formatted numbers, names, the opening of a report, and its warnings.

An em dash stands for a number that cannot be computed. A warning has a stable code and a plain sentence.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import promised_number
from service.calibration.promotion import Improvement
from service.calibration.rows import FEW_ROWS, Verdict
from service.claims.verdicts import is_too_long
from service.scoring.judge import answers_drawn, percent
from service.spectral.fit import AnyFit
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import Difference, Interval, ResampleCounts, percentile_interval

MAX_USELESS = 0.05  # share of truncated answers without a warning
CONVERGED = 1e-4  # nats; a fit that has converged is within about 1e-6 (method, section 3)
FEW_OF_A_KIND = 20  # right or wrong answers; with 20, the standard error of an AUROC is about 0.07
SHORT_REFERENCES = (
    "answers judged by their words are so much longer than their references that a right one is recognised "
    "only if it contains a reference, word for word. Look at the verdicts, or give your own (`correct`)."
)
RESTS = "AUROC and P(correct), if there is one, rest"

Bools = NDArray[np.bool_]
Part = Mapping[str, Any]  # of a report
Caution = dict[str, str]
ALIKE = 0.02  # two projection ECEs with a smaller difference count as equal: folds make such differences
MISSING = "—"
MAPS = {
    "raw": "Raw",
    "temperature": "Temperature",
    "depolarized": "Depolarized",
    "evidence": "Evidence",
}
ORIGINS = {
    "raw": "no calibration",
    "temperature": "the paper's map",
    "depolarized": "ours",
    "evidence": "ours, by log-probabilities",
}
LABELLED = {
    "data": "the labels in the data",
    "rule": "comparing the words of answer and references",
    "mixed": "the labels in the data, or the words of answer and references where there is no label",
}
RULES = {
    "given": "given in the data",
    "equal": "equal to a reference",
    "contains": "contains a reference",
    "contained": "at least half of a reference",
    "spelling": "a reference in another spelling",
    "none": "no reference fits",
}


def finite(value: float) -> float | None:
    """Return the number, or None for NaN and infinities, which JSON lacks."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, spread: Interval | Difference | None = None) -> dict[str, float | None]:
    """Return the figure of a report: a value and its interval."""
    low, high = (math.nan, math.nan) if spread is None else (spread.low, spread.high)
    return {"value": finite(value), "low": finite(low), "high": finite(high)}


def ranking(resamples: ResampleCounts, scores: NDArray[np.float64], right: Bools) -> dict[str, float | None]:
    """Return the AUROC of scores (n,), higher = more certain, for verdicts (n,), with its interval."""
    return estimate(auroc(scores, right), percentile_interval(resampled_aurocs(resamples, scores, right)))


def number(value: float | None, digits: int = 3) -> str:
    """Return the formatted number, with a real minus sign and no negative zero; an em dash for None."""
    if value is None:
        return MISSING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # -0.0 + 0.0 is 0.0


def share(value: float) -> str:
    """Return a share in [0, 1] as a percentage with at most one decimal."""
    return f"{100 * value:.1f} %".replace(".0 %", " %")


def between(bounds: Part) -> str:
    """Return "low to high", or "" without bounds."""
    if bounds["low"] is None or bounds["high"] is None:
        return ""
    return f"{number(bounds['low'])} to {number(bounds['high'])}"


def count(number_of: int, thing: str) -> str:
    """Return "1 prompt", "1,234 prompts"."""
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"


def when(stamp: str) -> str:
    """Return an ISO time as date, minutes and time zone."""
    date, _, clock = stamp.partition("T")
    return f"{date} {clock[:5]}{' UTC' if clock.endswith(('Z', '+00:00')) else clock[8:]}"


def visible(text: str) -> str:
    """Return the text with control characters replaced, except tab and newline, for use in HTML."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


def typeset(text: str) -> str:
    """Return the text typeset for pages: λmax, real minus signs, "p = 0.01" without a line break."""
    signed = re.sub(r"(?<![\w.-])-(?=\d)", "−", text.replace("lambda_max", "λmax"))
    return re.sub(r"\b([pT]) = (?=\d)", "\\1\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", signed)


def fingerprint_rows(fingerprint: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return (name, value) of each part of the fingerprint that is set."""
    parts = {name: value for name, value in fingerprint.items() if value not in ("", None, [])}
    return [(n, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for n, v in parts.items()]


# The opening of a report, and its warnings.


def opening(report: Part, target_error: float, num_samples: int | None) -> dict[str, str | int | None]:
    """Return the summary for an operator who wants to keep this error among the answers let through.

    num_samples: the recommended number of answers, as in `Promotion`.

    verdict: "Use it.", "Use ..." with what may be used, "Not yet: ..." or "No.". safe: how far off its
    numbers are, and for which questions. promise: the error that it promises. answers: how many answers to
    draw. num_samples: this number, null without a recommendation.
    """
    rows, answers = report["correctness"]["by_num_samples"], report["answers"]
    promises = {
        row["num_samples"]: promised
        for row in rows
        for promised in row["promises"]
        if promised["target_error"] == target_error and promised["threshold"] is not None
    }
    lowest = {row["num_samples"]: row["lowest"] for row in rows if row["lowest"]}
    texts = "claims" if report["calibration"]["fingerprint"].get("unit") == "claim" else "answers"
    # If the target cannot be promised, the recommended number does not depend on it.
    enough = answers["recommendation"]
    if num_samples is not None and num_samples in promises:
        promised = promises[num_samples]
        promise = f"{promised['text']} {_let_through(promised)}"
        enough = f"{answers_drawn(num_samples)}: the fewest that reach this promise."
    elif lowest:
        drawn = report["data"]["num_samples"] if num_samples is None else num_samples
        number = promised_number({m: low["target_error"] for m, low in lowest.items()}, drawn)
        promise = (
            f"Nothing at {percent(target_error)}, so decisions at this target let no {texts} through. "
            f"{lowest[number]['text']} {_let_through(lowest[number])}"
        )
    else:
        promise = f"Nothing: no number of answers allows a promise, so decisions let no {texts} through."
    return {
        "verdict": _verdict(report, is_promised=bool(promises)),
        "safe": _safe(report),
        "promise": promise,
        "answers": enough,
        "num_samples": num_samples,
    }


def _let_through(promised: Part) -> str:
    return f"Such decisions let {round(100 * promised['coverage'])} % of the questions through."


def _verdict(report: Part, *, is_promised: bool) -> str:
    """Return the verdict in a few words. Too few rows take precedence over everything else.

    It does not rest on p-values: they depend too much on how the rows fall into folds.
    """
    missing, decision = FEW_ROWS - report["data"]["rows_full"], report["decision"]
    if missing > 0:
        return (
            "Use it, and collect more rows." if _was_activated(report) else f"Not yet: {rows_needed(missing)}"
        )
    refused, is_close = decision["asked"] != "never" and not decision["activated"], _is_close(report)
    if refused or not (is_close or _was_activated(report)):
        return "No."
    if is_promised:
        return "Use it." if is_close else "Use its P(correct), not its lambda_max."
    return (
        "Use its P(correct), not its decisions."
        if report["correctness"]["diagram"]
        else "Use its lambda_max only."
    )


def _was_activated(report: Part) -> bool:
    """Return True if `if_better` activated the calibration."""
    decision = report["decision"]
    return bool(decision["asked"] == "if_better" and decision["activated"])


def rows_needed(missing: int) -> str:
    """Return the number of missing rows as a sentence."""
    return f"{count(missing, 'more row')} {'is' if missing == 1 else 'are'} needed."


def _raw_and_ours(report: Part) -> tuple[float, float]:
    """Return the projection ECE of raw scores, and of the calibration."""
    return report["projection"]["raw"]["ece"], report["projection"][report["calibration"]["method"]]["ece"]


def _is_close(report: Part) -> bool:
    """Return True if the projection ECE is lower than that of raw scores plus `ALIKE`."""
    raw, ours = _raw_and_ours(report)
    return ours < raw + ALIKE


def _safe(report: Part) -> str:
    (raw, ours), num = _raw_and_ours(report), report["data"]["rows_full"]
    if num < FEW_ROWS:
        if _was_activated(report):
            return (
                f"Its {num} rows adjust the bundled calibration. They are too few to measure its error on "
                "such questions."
            )
        return f"Its {num} rows are too few to tell whether it is safe to use."
    held_out, diagram = f"On held-out questions like its {num} rows", report["correctness"]["diagram"]
    if diagram:
        off = sum(one["count"] * abs(one["predicted"] - one["observed"]) for one in diagram)
        size = sum(one["count"] for one in diagram)
        text = (
            f"{held_out}, P(correct) is off by {off / size:.2f} on average, and "
            f"lambda_max, which measures how far answers agree, by {ours:.2f} (raw scores: {raw:.2f})."
        )
    else:
        text = (
            f"{held_out}, lambda_max is off by {ours:.2f} on average (raw scores: {raw:.2f}). It measures "
            "how far answers agree, not whether an answer is right."
        )
    if report["data"]["correct_from"] != "data":
        text += " Answers were judged by comparing their words with the references: check the verdicts below."
    return text


def caution(code: str, text: str) -> Caution:
    """Return a warning with a stable code."""
    return {"code": code, "text": text}


def few_of_a_kind(right: Bools, of_file: str = "", rests: str = RESTS) -> Iterator[Caution]:
    """Yield a warning for few right answers, and one for few wrong answers, of verdicts (n,).

    A kind without answers gets no warning, because there is no AUROC then. of_file: names the file, such as
    " of the dev file", if there are several. rests: the figures that rest on these answers, with the verb.
    """
    counts = {"right": int(right.sum()), "wrong": int(right.size - right.sum())}
    for kind, number_of in counts.items():
        if 0 < number_of < FEW_OF_A_KIND and number_of < right.size:
            text = f"Only {number_of} of {right.size} answers{of_file} are {kind}: {rests} on these few."
            yield caution(f"few_{kind}", text)


def about_data(data: Part, right: Bools) -> Iterator[Caution]:
    """Yield warnings about few, short or unusable rows, verdicts (n,) of one kind, or cut answers."""
    full, usable = data["rows_full"], data["usable"]
    if full < FEW_ROWS:
        yield caution(
            "few_rows",
            f"Only {full} rows: intervals are wide; unusual prompts go unnoticed. Use at least {FEW_ROWS}.",
        )
    if usable > full:
        fewer = f"have fewer than {data['num_samples']} answers"
        text = f"{usable - full} rows {fewer}: they are left out of the fit."
        yield caution("short_rows", text)
    if copies := data["copies"]:
        text = f"{copies} rows repeat the question of another row, or nearly: one row per question counts."
        yield caution("copies", text)
    if data["rows"] > usable + copies:
        num = data["rows"] - usable - copies
        text = f"{num} rows were left out: they have no reference or verdict, or fewer than two answers."
        yield caution("unusable_rows", text)
    if refused := data["refused"]["count"]:
        were = "1 row was" if refused == 1 else f"{refused} rows were"
        text = f"{were} refused by the LLM server while it answered others; the report lists the lines."
        yield caution("refused_rows", text)
    if right.all() or not right.any():
        which = "right" if right.all() else "wrong"
        yield caution("one_class", f"All answers are {which}: AUROC cannot be computed.")
    yield from few_of_a_kind(right)
    if data["truncated"] > MAX_USELESS:
        yield caution("truncated", f"{data['truncated']:.0%} of the answers were cut by max_tokens.")


def about_verdicts(verdicts: Sequence[Verdict], references: Sequence[Sequence[str]]) -> Iterator[Caution]:
    """Yield a warning if most answers judged by words are too long for their references."""
    by_words = [pair for pair in zip(verdicts, references, strict=True) if pair[0].rule != "given"]
    long = sum(is_too_long(verdict.answer, of) for verdict, of in by_words)
    if long > len(by_words) / 2:
        yield caution("short_references", f"{long} of {len(by_words)} {SHORT_REFERENCES}")


def about_checks(why_unchecked: str) -> Iterator[Caution]:
    """Yield a warning if self-checks were asked for but are not used. why_unchecked: the reason, else ""."""
    if why_unchecked:
        yield caution("no_self_checks", f"P(correct) was fitted without self-checks: {why_unchecked}")


def about_fit(fit: AnyFit) -> Iterator[Caution]:
    """Yield warnings about parameters on a bound, or a search that has not converged."""
    for name in fit.at_bound:
        text = f"The best {name} is at a bound of the search: the data do not determine it."
        yield caution("at_bound", text)
    if not fit.at_bound and fit.stationarity_gap > CONVERGED:
        text = f"The search stopped {fit.stationarity_gap:.1e} from a stationary point."
        yield caution("not_converged", text)


def about_improvement(improvement: Improvement) -> Iterator[Caution]:
    """Yield a warning if held-out rows show no gain, or a gain that may be chance."""
    if why := improvement.shortcomings():
        yield caution("not_better", f"{why[0][0].upper()}{why[0][1:]}.")
        return
    # Against an active calibration, a gain that may be chance is already a shortcoming.
    if improvement.against is None and max(improvement.risk.high, improvement.brier.high) >= 0:
        yield caution("gain_unsure", "Its gain over raw scores may be chance: the interval reaches 0.")
