"""Whether an answer is right, on the page of a report: the table, the promises, why there is none."""

import re
from html import unescape

import pytest

from service.domain.study.report_model import Report
from service.report import render
from tests.support.reports import deciding_report, small_report


def flat(page: str) -> str:
    body = unescape(re.sub(r"<[^>]*>", " ", page.split("</style>", 1)[1]))
    return re.sub(r"\s+", " ", body)


@pytest.fixture(scope="module")
def report() -> Report:
    return deciding_report()


def test_the_page_says_what_the_report_promises(report: Report) -> None:
    part = report["correctness"]
    page = render(report)
    text = flat(page)
    assert "150 rows to fit a map and the model, and 150 that neither has seen" in text
    for promise in part["promises"]:
        assert promise["text"] in text
        if promise["threshold"] is not None:
            assert f"{promise['threshold']:.3f} {promise['answered']}" in text
    for row in part["by_num_samples"]:
        assert f"{row['num_samples']} {row['log_loss']:.3f} {row['base_log_loss']:.3f}" in text
    assert 'id="p-correct-' in page
    assert 'id="risk-coverage-' in page
    assert "there is no model" not in text


def test_targets_of_one_threshold_share_a_point(report: Report) -> None:
    part = report["correctness"]
    one = next(promise for promise in part["promises"] if promise["threshold"] is not None)
    changed = deciding_report()
    changed["correctness"]["promises"] = [{**one, "target_error": 0.3}, {**one, "target_error": 0.4}]
    page = render(changed)
    told = re.search(r'<desc id="risk-coverage-desc">(.*?)</desc>', page)
    assert told is not None
    assert told[1].startswith("30 %, 40 %: ")


def test_without_a_model_the_page_says_why() -> None:
    text = flat(render(deciding_report(80)))
    assert "With 4 answers there is no model" in text
    assert "have 26 right answers and 14 wrong ones; it takes 20 of each." in text
    assert "P(correct) by number of answers" not in text
    assert "cannot be promised" not in text
    one = flat(render(small_report(right=False)))
    assert "all answers of the rows that would fit it are wrong." in one


def test_a_model_for_some_numbers_of_answers_only_is_told_by_number(report: Report) -> None:
    changed = deciding_report()
    part = changed["correctness"]
    part["by_num_samples"][-1] |= {"why_none": "no_better_than_base_rate", "features": []}
    part |= {"promises": [], "diagram": [], "risk_coverage": []}
    text = flat(render(changed))
    assert "With 4 answers there is no model" in text
    assert "no model: on held-out rows nothing tells right from wrong better" in text
    assert "probability of the answer" in text


def test_a_report_of_before_is_still_a_page() -> None:
    before = small_report()
    del before["correctness"]
    assert "Is this answer right?" not in flat(render(before))
    assert "Is this answer right?" in flat(render(small_report()))
