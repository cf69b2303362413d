"""The three lines that a report opens with: is it safe to use, what does it promise, how many answers."""

from service.domain.scoring.deciding import percent
from service.domain.study.report_model import (
    AnswersPart,
    CalibrationPart,
    CorrectnessAt,
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
    return {
        "safe": _safe(calibration, data, served),
        "promise": _promise(correctness, reached, target_error),
        "answers": _answers(reached, answers, target_error),
        "num_samples": reached[0] if reached else answers["recommended"],
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


def _promise(part: CorrectnessPart, reached: tuple[int, PromiseAt] | None, target_error: float) -> str:
    if reached:
        return f"{reached[1]['text']} It lets {reached[1]['coverage']:.0%} of such questions through."
    told = [row for row in part["by_num_samples"] if row["promises"]]
    if not told:
        return "Nothing: no model tells how likely an answer is right, so every decision is to abstain."
    lowest = min(filter(None, map(_lowest, told)), default=None)
    instead = f"; the lowest error that can be is {percent(lowest)}" if lowest else ""
    return (
        f"Nothing at {percent(target_error)}: such an error among the answers let through cannot be promised"
        f"{instead}."
    )


def _lowest(row: CorrectnessAt) -> float | None:
    return row["lowest"]["target_error"] if row["lowest"] else None


def _answers(reached: tuple[int, PromiseAt] | None, answers: AnswersPart, target_error: float) -> str:
    if reached:
        number = reached[0]
        return f"{number} {'answer' if number == 1 else 'answers'}: the fewest that reach this promise."
    return f"No number reaches {percent(target_error)}. {answers['recommendation']}"
