"""The three lines that a report opens with: is it safe to use, what does it promise, how many answers."""

from service.domain.scoring.deciding import percent
from service.domain.study.report_model import (
    AnswersPart,
    CalibrationPart,
    CorrectnessPart,
    DataPart,
    Opening,
    PromiseAt,
    ServedRow,
)

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
