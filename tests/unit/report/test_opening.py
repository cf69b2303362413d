"""The three opening lines of a report."""

from dataclasses import dataclass
from typing import Any

import pytest

from service.report.report import change_part
from service.report.words import opening
from service.scoring.score import Target
from service.spectral.selective import SelectiveCounts
from tests.support.reports import TARGET, deciding_report


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


def test_it_begins_with_a_verdict() -> None:
    report = deciding_report()
    raw, ours = report["projection"].values()
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, TARGET.error, None)["verdict"] == "Use it."
    assert opening(report, 0.001, None)["verdict"] == "Use its P(correct), not its decisions."  # no promise
    without = {**report, "correctness": {**report["correctness"], "diagram": []}}
    assert opening(without, 0.001, None)["verdict"] == "Use its lambda_max only."
    report["decision"]["activated"] = False
    assert opening(report, TARGET.error, None)["verdict"] == "No."
    report["decision"]["asked"] = "never"
    assert opening(report, TARGET.error, None)["verdict"] == "Use it."
    ours["ece"] = raw["ece"] + 0.01
    assert opening(report, TARGET.error, None)["verdict"] == "Use it."  # raw scores are as good
    ours["ece"] = raw["ece"] + 0.05
    assert opening(report, TARGET.error, None)["verdict"] == "No."
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, TARGET.error, None)["verdict"] == "Use its P(correct), not its lambda_max."


def test_rows_too_few_to_judge_by_come_first_with_how_many_more_are_needed() -> None:
    report = deciding_report()
    report["decision"] |= {"asked": "always", "activated": True}
    for rows, verdict in ((99, "Not yet: 1 more row is needed."), (12, "Not yet: 88 more rows are needed.")):
        report["data"]["rows_full"] = rows
        assert opening(report, 0.2, None)["verdict"] == verdict
    report["decision"]["asked"] = "if_better"  # its prior is the bundled calibration
    assert opening(report, 0.2, None)["verdict"] == "Use it, and collect more rows."
    assert "adjust the bundled calibration" in opening(report, 0.2, None)["safe"]
    report["data"]["rows_full"] = 100
    assert opening(report, 0.2, None)["verdict"] == "Use it."


@dataclass
class Counted:
    """A selector with these counts."""

    counts: SelectiveCounts


@pytest.mark.parametrize(
    ("rows", "counts", "target", "change"),
    [
        (99, [(30, 0)], 0.05, (1, None)),
        (100, [(30, 0)], 0.05, (37, 0.05)),
        (100, [(30, 0), (40, 0)], 0.05, (19, 0.05)),
        (100, [(30, 0), (45, 0)], 0.05, None),
        (100, [(100, 10)], 0.1, (None, 0.1)),
        (100, [(30, 30)], 0.1, (None, 0.1)),
        (100, [], 0.1, None),
    ],
)
def test_it_says_what_would_change_it(
    rows: int, counts: list[tuple[int, int]], target: float, change: tuple[int | None, float | None] | None
) -> None:
    selectors: list[Any] = [None]
    selectors += [Counted(SelectiveCounts((0.5,), (answered,), (wrong,))) for answered, wrong in counts]
    found = change_part({"rows_full": rows}, selectors, Target(target, 0.9))
    assert (found and (found["rows"], found["target_error"])) == change
