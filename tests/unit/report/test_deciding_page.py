"""P(correct) on the page of a report: the table, the promises, and reasons for a missing model."""

import re
from typing import Any

import pytest

from service.report.pages import render
from tests.support.pages import svgs
from tests.support.reports import deciding_report


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return deciding_report()


def test_plots_show_lambda_max_p_correct_and_the_error_let_through(report: dict[str, Any]) -> None:
    assert set(svgs(render(report))) == {"projection", "p-correct", "risk-coverage"}


def test_promises_are_shown_for_every_number_of_answers(report: dict[str, Any]) -> None:
    page = render(report)
    [table] = re.findall(r'aria-label="Promises by number of answers".*?</table>', page, re.DOTALL)
    for row in report["correctness"]["by_num_samples"]:
        kept = [promise for promise in row["promises"] if promise["threshold"] is not None]
        shares = [f"{100 * item['coverage']:.1f} %".replace(".0 %", " %") for item in kept]
        [line] = re.findall(rf'<th scope="row">{row["num_samples"]}\b.*?</tr>', table, re.DOTALL)
        assert all(f"<td>{share}</td>" in line for share in shares)
    assert table.count('<span class="tag">recommended</span>') == 1
