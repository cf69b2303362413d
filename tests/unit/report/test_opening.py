"""The first three lines of a report."""

from service.report.words import opening
from tests.support.reports import deciding_report, small_report


def test_smallest_number_that_reaches_the_promise_is_recommended() -> None:
    report = deciding_report()
    for row in report["correctness"]["by_num_samples"]:
        for promise in row["promises"]:
            if row["num_samples"] < 3 and promise["target_error"] == 0.3:
                promise["threshold"] = None
    opening_ = opening(report, 0.3)
    assert opening_["num_samples"] == 3
    assert opening_["answers"] == "3 answers: the fewest that reach this promise."
    [row] = [score for score in report["correctness"]["by_num_samples"] if score["num_samples"] == 3]
    [kept] = [promise_ for promise_ in row["promises"] if promise_["target_error"] == 0.3]
    assert opening_["promise"].startswith(kept["text"])
    assert f"lets {kept['coverage']:.0%} of" in opening_["promise"]


def test_unreachable_target_names_a_reachable_one() -> None:
    report = deciding_report()
    opening_ = opening(report, 0.05)
    rows = report["correctness"]["by_num_samples"]
    lowest, number = min((row["lowest"]["target_error"], row["num_samples"]) for row in rows)
    assert opening_["promise"].startswith("Nothing at 5 %")
    assert f"the lowest that can be is {100 * lowest:g} %" in opening_["promise"]
    assert opening_["promise"].endswith(f"{100 * lowest:g} %, by {number} answers.")
    assert opening_["num_samples"] == report["answers"]["recommended"]


def test_without_a_model_nothing_is_promised() -> None:
    opening_ = small_report()["opening"]
    assert opening_["promise"].startswith("Nothing: no number of answers allows a promise")
    assert opening_["safe"].endswith("not whether one is right.")


def test_opening_states_whether_it_is_safe_to_use() -> None:
    report = deciding_report()
    raw, ours = report["served"][0], report["served"][-1]
    assert ours["map"] == report["calibration"]["method"]
    assert opening(report, 0.2)["safe"].startswith("Safe to use for questions like its 300 rows")
    ours["projection_null"]["p_value"] = 0.01
    assert opening(report, 0.2)["safe"].startswith("To be used with care")
    ours["projection_ece"] = raw["projection_ece"]
    report["decision"]["activated"] = False
    assert opening(report, 0.2)["safe"].startswith("Not safe to use")


def test_opening_starts_with_a_verdict() -> None:
    report = deciding_report()
    raw, ours = report["served"][0], report["served"][-1]
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, 0.2)["verdict"] == "Use it."
    ours["projection_null"]["p_value"] = 0.01
    assert opening(report, 0.2)["verdict"] == "Use it with care."
    report["decision"]["activated"] = False
    assert opening(report, 0.2)["verdict"] == "No."
    report["decision"]["asked"] = "never"
    assert opening(report, 0.2)["verdict"] == "Use it with care."
    ours["projection_ece"] = raw["projection_ece"]
    assert opening(report, 0.2)["verdict"] == "No."
    report["decision"] |= {"asked": "if_better", "activated": True}
    assert opening(report, 0.2)["verdict"] == "Use it with care."
    assert opening(report, 0.2)["safe"].startswith("To be used with care")


def test_too_few_rows_are_mentioned_first_with_the_missing_number() -> None:
    report = deciding_report()
    report["decision"] |= {"asked": "always", "activated": True}
    for rows, verdict in ((99, "Not yet: 1 more row is needed."), (12, "Not yet: 88 more rows are needed.")):
        report["data"]["rows_full"] = rows
        assert opening(report, 0.2)["verdict"] == verdict
    report["data"]["rows_full"] = 100
    assert opening(report, 0.2)["verdict"] == "Use it."
