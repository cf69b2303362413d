"""The page of an evaluation, from stored results: the verdict first, and parts that reports lack."""

from typing import Any

import pytest

from lab.maps import compare
from lab.page import render_evaluation
from service.report.words import number
from tests.support.pages import check_ids, check_self_contained, svgs
from tests.support.reports import evaluation_results


@pytest.fixture
def results() -> dict[str, Any]:
    return evaluation_results()


@pytest.fixture(scope="module")
def page() -> str:
    """The page of the stored results, drawn."""
    return render_evaluation(evaluation_results())


def test_it_is_self_contained_and_escaped(page: str) -> None:
    check_self_contained(page)
    check_ids(page, 30)
    assert "<b>an</b>" not in page
    assert {"projection-raw", "algorithm1-evidence"} <= svgs(page).keys()


def test_best_value_of_each_row_is_marked_in_text(page: str, results: dict[str, Any]) -> None:
    lines = {line["name"]: line["cells"] for line in compare(results["served"])}
    ece = [row["projection_ece"] for row in results["served"]]
    assert [cell["best"] for cell in lines["Projection ECE"]] == [value == min(ece) for value in ece]
    assert not any(cell["best"] for cell in lines["Mean λmax"])
    assert f'<span class="best">{number(min(ece))}</span> <span class="tag">best</span>' in page
