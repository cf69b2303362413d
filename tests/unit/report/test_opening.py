"""The three opening lines of a report."""

from dataclasses import dataclass
from typing import Any

import pytest

from service.report.report import change_part
from service.report.words import opening
from service.scoring.score import Target
from service.spectral.selective import SelectiveCounts
from tests.support.reports import TARGET, deciding_report, small_report


def test_the_fewest_answers_that_reach_the_promise_are_recommended() -> None:
    report = deciding_report()
    promises = {
        row["num_samples"]: promise
        for row in report["correctness"]["by_num_samples"]
        for promise in row["promises"]
        if promise["target_error"] == TARGET.error and promise["threshold"] is not None
    }
    fewest, summary = min(promises), report["opening"]
    assert summary["num_samples"] == fewest
    assert summary["answers"].endswith(": the fewest that reach this promise.")
    assert summary["promise"].startswith(promises[fewest]["text"])
    assert f"lets {round(100 * promises[fewest]['coverage'])} % of" in summary["promise"]


def test_a_target_out_of_reach_promises_nothing_and_names_what_can_be() -> None:
    report = deciding_report()
    found = opening(report, 0.05, None)
    rows = report["correctness"]["by_num_samples"]
    lowest, number = min((row["lowest"]["target_error"], row["num_samples"]) for row in rows)
    assert found["promise"].startswith("Nothing at 5 %")
    assert f"the lowest possible error is {100 * lowest:g} %" in found["promise"]
    assert found["promise"].endswith(f"{100 * lowest:g} %, with {number} answers.")


def test_without_a_model_nothing_is_promised() -> None:
    found = small_report()["opening"]
    assert found["promise"].startswith("Nothing: no number of answers allows a promise")
    assert found["safe"].endswith("not whether an answer is right.")


def test_it_says_whether_it_is_safe_to_use() -> None:
    report = deciding_report()
    raw, ours = report["served"][0], report["served"][-1]
    assert ours["map"] == report["calibration"]["method"]
    assert opening(report, 0.2, None)["safe"].startswith("Safe to use for questions like its 300 rows")
    ours["projection_null"]["p_value"] = 0.01
    assert opening(report, 0.2, None)["safe"].startswith("To be used with care")
    ours["projection_ece"] = raw["projection_ece"]
    report["decision"]["activated"] = False
    assert opening(report, 0.2, None)["safe"].startswith("Not safe to use")


def test_it_begins_with_a_verdict() -> None:
    report = deciding_report()
    raw, ours = report["served"][0], report["served"][-1]
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, 0.2, None)["verdict"] == "Use it."
    ours["projection_null"]["p_value"] = 0.01
    assert opening(report, 0.2, None)["verdict"] == "Use it with care."
    report["decision"]["activated"] = False
    assert opening(report, 0.2, None)["verdict"] == "No."
    report["decision"]["asked"] = "never"
    assert opening(report, 0.2, None)["verdict"] == "Use it with care."
    ours["projection_ece"] = raw["projection_ece"]
    assert opening(report, 0.2, None)["verdict"] == "No."
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, 0.2, None)["verdict"] == "Use it with care."
    assert opening(report, 0.2, None)["safe"].startswith("To be used with care")


def test_rows_too_few_to_judge_by_come_first_with_how_many_more_are_needed() -> None:
    report = deciding_report()
    report["decision"] |= {"asked": "always", "activated": True}
    for rows, verdict in ((99, "Not yet: 1 more row is needed."), (12, "Not yet: 88 more rows are needed.")):
        report["data"]["rows_full"] = rows
        assert opening(report, 0.2, None)["verdict"] == verdict
    report["data"]["rows_full"] = 100
    assert opening(report, 0.2, None)["verdict"] == "Use it."


OUT_OF_REACH = "More rows like these would not be enough to promise 10 %."


@dataclass
class Counted:
    """A selector with these counts."""

    counts: SelectiveCounts


@pytest.mark.parametrize(
    ("rows", "counts", "target", "change"),
    [
        (99, [(30, 0)], 0.05, ("1 more row is needed.", 1, None)),
        (
            100,
            [(30, 0)],
            0.05,
            ("With about 37 more labelled rows like these, an error of 5 % could be promised.", 37, 0.05),
        ),
        (
            100,
            [(30, 0), (40, 0)],
            0.05,
            ("With about 19 more labelled rows like these, an error of 5 % could be promised.", 19, 0.05),
        ),
        (100, [(30, 0), (45, 0)], 0.05, None),
        (
            100,
            [(100, 10)],
            0.1,
            (f"{OUT_OF_REACH} With many more, this P(correct) could promise 11.6 %.", None, 0.1),
        ),
        (100, [(30, 30)], 0.1, (OUT_OF_REACH, None, 0.1)),
        (100, [], 0.1, None),
    ],
)
def test_it_says_what_would_change_it(
    rows: int, counts: list[tuple[int, int]], target: float, change: tuple[str, int | None, float | None]
) -> None:
    selectors: list[Any] = [None]
    selectors += [Counted(SelectiveCounts((0.5,), (answered,), (wrong,))) for answered, wrong in counts]
    found = change_part({"rows_full": rows}, selectors, Target(target, 0.9))
    assert (found and tuple(found.values())) == change
