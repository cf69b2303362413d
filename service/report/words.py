"""Numbers, names and nulls as the pages write them. What cannot be computed is an em dash."""

import json
import math
import re
from collections.abc import Mapping

from service.report.model import Estimate, NullPart

LEVEL = 0.05  # of the p-value of a null
MISSING = "—"
MAPS = {
    "raw": "Raw",
    "temperature": "Temperature",
    "depolarized": "Depolarized",
    "evidence": "Evidence",
    "active": "Active before",
}
ORIGINS = {
    "raw": "no calibration",
    "temperature": "the paper's map",
    "depolarized": "ours",
    "evidence": "ours, by log-probabilities",
    "active": "what it would replace",
}
LABELLED = {
    "data": "the labels in the data",
    "rouge_l": "words: ROUGE-L F above 0.3 against the best reference, or a reference in it",
    "mixed": "the labels in the data, or words where there is none (as ROUGE-L F above 0.3)",
}
WHY_RIGHT = {
    "given": "as the data says",
    "rouge_l": "ROUGE-L F above 0.3",
    "reference_contained": "a reference stands in it",
    "none": "neither ROUGE-L nor a reference in it",
}


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a real minus sign and never a negative zero; an em dash for None."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # -0.0 + 0.0 is 0.0


def share(value: float) -> str:
    """Return a share in [0, 1] as percents; small ones are not rounded away."""
    return f"{100 * value:.1f} %".replace(".0 %", " %")


def between(bounds: Estimate | NullPart) -> str:
    """Return "low to high", or nothing when there are no bounds."""
    if bounds["low"] is None or bounds["high"] is None:
        return ""
    return f"{number(bounds['low'])} to {number(bounds['high'])}"


def count(number_of: int, thing: str) -> str:
    """Return "1 prompt", "1,234 prompts"."""
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"


def when(stamp: str) -> str:
    """Return an ISO time as date, minutes and zone; anything else as it is."""
    date, _, clock = stamp.partition("T")
    if not clock:
        return stamp
    return f"{date} {clock[:5]}{' UTC' if clock.endswith(('Z', '+00:00')) else clock[8:]}"


def visible(text: str) -> str:
    """Return text that HTML may hold: control characters but for tab and newline replaced."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


def typeset(text: str) -> str:
    """Return text of results as the pages write it: λmax, real minus signs, "p = 0.01" on one line."""
    signed = re.sub(r"(?<![\w.-])-(?=\d)", "−", text.replace("lambda_max", "λmax"))
    return re.sub(r"\b([pT]) = (?=\d)", "\\1\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", signed)


def fingerprint_rows(fingerprint: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return (name, value) of the parts that are set."""
    known = {name: value for name, value in fingerprint.items() if value not in ("", None, [])}
    return [(n, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for n, v in known.items()]


def p_words(p_value: float | None) -> str:
    """Return "p = 0.042" on one line; "p unknown" for None. With D draws it is 1 / (1 + D) at least."""
    return "p unknown" if p_value is None else f"p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{number(p_value)}"


def off(p_value: float | None) -> bool:
    """Return whether a p-value shows a gap that chance does not explain."""
    return p_value is not None and p_value <= LEVEL


def judgment(p_value: float | None) -> str:
    """Return what a p-value shows of a map, as a predicate. A large one is no proof of calibration."""
    if p_value is None:
        return "cannot be judged"
    return "is off by more than chance" if off(p_value) else "shows no miscalibration"
