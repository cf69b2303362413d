"""The page of a report: self-contained, escaped, accessible, deterministic, correct with missing parts."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from service.report import plots
from service.report.pages import render
from service.report.words import fingerprint_rows, number, share, visible, when
from tests.support.pages import Elements, check_ids, check_self_contained, svgs, words
from tests.support.reports import evidence_report, one_class_report, small_report

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"
NASTY = '<script>alert("x")</script> & \'"><img src=http://evil.example/x onerror=alert(1)> {{ 7 * 7 }} \x00'
DRAW = plots.draw


@pytest.fixture(scope="module")
def page() -> str:
    """The page of the small report, drawn."""
    return render(small_report())


@pytest.fixture
def report() -> dict[str, Any]:
    return small_report()


def test_import_loads_neither_plots_nor_templates() -> None:
    code = (
        "import sys, service.report.pages, service.report.report; "
        "print([m for m in ('matplotlib', 'jinja2') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_pages_are_deterministic_in_threads_and_for_any_matplotlib_settings(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "draw", DRAW)
    with (
        matplotlib.rc_context({"lines.linewidth": 17, "svg.fonttype": "path"}),
        ThreadPoolExecutor(2) as pool,
    ):
        assert set(pool.map(render, [small_report() for _ in range(2)])) == {page}
        assert matplotlib.rcParams["lines.linewidth"] == 17


def test_nothing_comes_from_outside_and_nothing_runs(page: str) -> None:
    check_self_contained(page)


def test_ids_are_unique_and_every_reference_resolves(page: str) -> None:
    check_ids(page, 50)


def test_language_title_and_headings_in_order(page: str) -> None:
    elements = Elements(page)
    assert elements.named("html")[0][1]["lang"] == "en"
    assert "<title>Calibration report: Small world</title>" in page
    levels = [int(tag[1]) for tag, _ in elements.named("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_scopes(page: str) -> None:
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) == 5
    for table in tables:
        assert words(re.findall(r"<caption>(.*?)</caption>", table, re.DOTALL)[0]).strip()
        scopes = {a.get("scope") for _, a in Elements(table).named("th")}
        assert scopes and scopes <= {"row", "col"}


def test_every_plot_is_an_image_with_a_title_and_description(page: str) -> None:
    svgs_ = svgs(page)
    assert set(svgs_) == {"projection"}
    for name, svg in svgs_.items():
        assert svg.attrib["role"] == "img"
        for tag in ("title", "desc"):
            element = svg.find(SVG + tag)
            assert element is not None
            assert element.text, name
        assert list(svg.iter(SVG + "text")), f"{name}: letters are drawn as text"
        assert not list(svg.iter(SVG + "style")), f"{name}: a style would act on the whole page"


def test_page_shows_setup_and_data(page: str, report: dict[str, Any]) -> None:
    text, fit = words(page), report["fits"]["depolarized"]
    assert fit["depolarization"] is not None
    for value in (fit["temperature"], fit["depolarization"], report["fits"]["temperature"]["temperature"]):
        assert number(value) in text
    for name in ("2026-11-01 12:30 UTC", "Rows in the file 122", "720, drawn by the service", "a/model"):
        assert name in text
    assert 'sampling.stop ["\\n"]' in text
    assert report["decision"]["reason"] in text


def test_every_text_of_others_is_escaped(report: dict[str, Any], page: str) -> None:
    report["calibration"]["name"] = NASTY
    report["calibration"]["fingerprint"] |= {"source_label": NASTY, "model": NASTY, NASTY: [NASTY]}
    report["decision"]["reason"] = report["decision"]["against"] = NASTY
    report["warnings"] = [{"code": NASTY, "text": NASTY}]
    report["calibration"]["id"] = NASTY
    nasty = render(report)
    assert {tag for tag, _ in Elements(nasty).all} <= {tag for tag, _ in Elements(page).all}
    assert "\x00" not in nasty
    assert words(nasty).count("{{ 7 * 7 }}") >= 7
    check_self_contained(nasty)


@pytest.mark.parametrize("right", [True, False])
def test_labels_of_one_class(right: bool) -> None:
    report = one_class_report(right)
    page = render(report)
    assert report["opening"]["verdict"] == "No."
    assert f"all answers are {'right' if right else 'wrong'}" in words(page)
    assert "nan" not in words(page).lower().split()
    assert 'class="by-answers"' not in page


def test_missing_intervals_and_bounds_are_shown(report: dict[str, Any]) -> None:
    fit = report["fits"]["depolarized"]
    fit["at_bound"] = ["temperature"]
    report["decision"]["difference"] = {"value": None, "low": None, "high": None}
    text = words(render(report))
    assert "optimum on a bound: temperature" in text
    assert "risk — nats" in text


def test_previous_calibration_is_named() -> None:
    report = small_report(with_active=True)
    assert f"Differences from {report['decision']['against']}" in words(render(report))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "—"),
        (-0.0004, "0.000"),
        (-1.5, "−1.500"),
        (0.12345, "0.123"),
        (12, "12.000"),
    ],
)
def test_numbers(value: float | None, written: str) -> None:
    assert number(value) == written


def test_other_texts() -> None:
    assert (share(0.001), share(0.25), share(1.0), share(0.0), share(0.1)) == (
        "0.1 %",
        "25 %",
        "100 %",
        "0 %",
        "10 %",
    )
    assert when("2026-11-01T12:30:59+02:00") == "2026-11-01 12:30+02:00"
    assert when("2026-11-01T12:30:59.123456+00:00") == "2026-11-01 12:30 UTC"
    assert visible("a\x00b\x1b\ud800é😀\n") == "a�b��é😀\n"
    assert fingerprint_rows({"new": 3, "model": "m", "api": ""}) == [("new", "3"), ("model", "m")]


def test_papers_map_has_no_g(report: dict[str, Any]) -> None:
    report["calibration"] |= {"method": "temperature", "depolarization": None}
    report["projection"]["temperature"] = report["projection"].pop("depolarized")
    assert "— not in this map" in words(render(report))


def test_evidence_map_is_shown_with_the_others() -> None:
    report = evidence_report()
    page, fit = render(report), report["fits"]["evidence"]
    for name, letter in (("intercept", "a"), ("slope", "b")):
        assert f"{letter} = {number(fit[name])}" in words(page)
    assert "Evidence: ECE" in page


def test_the_table_by_number_of_answers_marks_the_recommended_one() -> None:
    report = evidence_report()
    report["opening"]["num_samples"] = 3
    page = render(report)
    [table] = re.findall(r'aria-label="Figures by number of answers".*?</table>', page, re.DOTALL)
    assert re.findall(r'<span class="best">(\d+)</span> <span class="tag">recommended', table) == ["3"]
    assert report["answers"]["recommendation"][:20] in words(page)
