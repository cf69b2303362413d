"""The evidence map on the page of a report: its fit beside the others, its parameters, why there is none."""

import re

import pytest

from service.report.pages import render
from service.report.plots import parameter_columns
from tests.support.reports import evidence_report, small_report


@pytest.fixture(scope="module")
def page() -> str:
    return render(evidence_report())


def flat(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_the_fit_stands_beside_the_others_with_its_intervals(page: str) -> None:
    fit = evidence_report()["fits"]["evidence"]
    text = flat(page)
    for name, letter in (("intercept", "a"), ("slope", "b")):
        found = fit[name]
        said = f"{letter} = {found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"
        assert said.replace("-", "\N{MINUS SIGN}") in text
    assert "Evidence this calibration ours, by log-probabilities" in text
    assert "Evidence was not fitted" not in text


def test_every_diagram_has_a_panel_of_it(page: str) -> None:
    for kind in ("projection", "algorithm1", "correctness"):
        assert f'id="{kind}-evidence' in page


def test_what_is_drawn_by_number_of_answers_is_its_own_table() -> None:
    report = evidence_report()
    columns = parameter_columns(report)
    assert list(columns) == ["num_samples", "T", "a", "b"]
    assert columns["num_samples"] == [1, 2, 3, 4]
    assert list(parameter_columns(small_report())) == ["num_samples", "T", "g"]


def test_the_page_says_what_log_probabilities_it_uses(page: str) -> None:
    assert "token_sums" in flat(page)


def test_the_page_says_why_there_is_no_evidence_map() -> None:
    text = flat(render(evidence_report(tells=False)))
    assert "Evidence was not fitted: 80 of 80 prompts have an answer without a log-probability" in text


def test_a_report_of_before_is_still_a_page() -> None:
    report = small_report()
    del report["unfitted"]
    assert "Evidence was not fitted" not in render(report)
