"""P(correct) on the page of a report: the table, the promises, and reasons for a missing model."""

import re
from typing import Any

import pytest

from service.report.pages import render
from tests.support.pages import words
from tests.support.reports import deciding_report, one_class_report, small_report


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return deciding_report()


def test_the_page_says_what_the_report_promises(report: dict[str, Any]) -> None:
    part = report["correctness"]
    page = render(report)
    text = words(page)
    assert "fitted on all 300 rows with all answers" in text
    for row in part["by_num_samples"]:
        assert f"{row['num_samples']} {row['log_loss']:.3f} {row['base_log_loss']:.3f}" in text
    assert 'id="p-correct-' in page
    assert 'id="risk-coverage-' in page
    assert "there is no model" not in text


def test_without_a_model_the_page_says_why() -> None:
    report = small_report()
    for row in report["correctness"]["by_num_samples"]:
        row |= {"why_none": "no_better_than_base_rate", "features": []}
        row |= {"promises": [], "lowest": None, "log_loss": None}
    report["correctness"] |= {"promises": [], "diagram": [], "risk_coverage": []}
    text = words(render(report))
    assert "With 6 answers there is no model" in text
    assert "nothing tells right from wrong better than their share of right answers does" in text
    assert "P(correct) by number of answers" not in text
    assert "cannot be promised" not in text
    assert "all answers are wrong." in words(render(one_class_report(False)))


def test_model_for_some_numbers_of_answers_is_shown_per_number(report: dict[str, Any]) -> None:
    changed = deciding_report()
    part = changed["correctness"]
    none = {"why_none": "no_better_than_base_rate", "features": [], "promises": [], "lowest": None}
    part["by_num_samples"][-1] |= none
    part |= {"promises": [], "diagram": [], "risk_coverage": []}
    text = words(render(changed))
    assert "With 4 answers there is no model" in text
    # Other numbers of answers, one of which may be recommended, are still shown.
    assert "Share of the questions let through, by number of answers" in text
    assert "no model: on held-out rows nothing tells right from wrong better" in text
    assert "probability of the answer" in text


def test_promises_are_shown_for_every_number_of_answers(report: dict[str, Any]) -> None:
    page = render(report)
    [table] = re.findall(r'aria-label="Promises by number of answers".*?</table>', page, re.DOTALL)
    for row in report["correctness"]["by_num_samples"]:
        kept = [promise for promise in row["promises"] if promise["threshold"] is not None]
        shares = [f"{100 * item['coverage']:.1f} %".replace(".0 %", " %") for item in kept]
        [line] = re.findall(rf'<th scope="row">{row["num_samples"]}\b.*?</tr>', table, re.DOTALL)
        assert all(f"<td>{share}</td>" in line for share in shares)
    assert table.count('<span class="tag">recommended</span>') == 1
