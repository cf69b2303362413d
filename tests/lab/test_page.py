"""The page of an evaluation, from stored results: the verdict first, and parts that reports lack."""

import re
from typing import Any

import pytest

from lab.page import render_evaluation
from tests.support.pages import check_ids, check_self_contained, section, svgs, words
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


def test_verdict_is_on_top_followed_by_notes(results: dict[str, Any]) -> None:
    results["warnings"] = [{"code": "few_right", "text": "Only 15 of 120 answers, mean lambda_max -0.3."}]
    page = render_evaluation(results)
    boxes = re.findall(r'<section[^>]*aria-labelledby="([^"]+)"', page)
    assert boxes[:3] == ["verdict", "warnings", "fitted"]
    assert "Only 15 of 120 answers, mean λmax −0.3." in section(page, "warnings")


def test_page_has_the_parts_that_reports_lack(results: dict[str, Any], page: str) -> None:
    section_ = section(page, "baselines")
    assert all(row["score"] in section_ for row in results["baselines"]["rows"])
    assert section(page, "comparison").count("−") >= len(results["comparison"])


def test_algorithm_1_has_its_nulls(results: dict[str, Any]) -> None:
    unknown: dict[str, Any] = {"mean": None, "low": None, "high": None, "p_value": None, "draws": 100}
    null: dict[str, Any] = {"mean": 0.031, "low": 0.016, "high": 0.048, "p_value": 0.001, "draws": 100}
    results["algorithm1"][0] |= {"ece": 0.1, "drawn": unknown, "rescaled": null}
    assert "0.100 a: unknown b: 0.016 to 0.048, p = 0.001" in words(render_evaluation(results))


def test_origin_is_shown(page: str) -> None:
    text = words(page)
    for detail in ("dev.jsonl", "0" * 64, "/embedder (revision r1, d = 24", "1e-10", "2026-11-01 12:30 UTC"):
        assert detail in text
    assert "not known: the answers came with the files" in text
