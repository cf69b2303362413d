"""The page of an evaluation, from stored results: the verdict first, and parts that reports lack."""

from typing import Any

import pytest

from lab.page import render_evaluation
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
