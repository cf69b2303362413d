"""The page of an evaluation, from stored results: the verdict on top, every ECE beside its nulls."""

import re

import pytest

from service.evaluation.baselines import not_drawn
from service.evaluation.page import FIGURES, evaluation_figures, evaluation_tables, render_evaluation
from service.evaluation.results import MAPS, Experiment, Results
from service.report.words import number, typeset
from tests.support.pages import check_ids, check_self_contained, section, words
from tests.support.reports import evaluation_results

NULLS = {
    "ece": 0.217,
    "band_mean": 0.15,
    "band_low": 0.12,
    "band_high": 0.18,
    "p_value": 0.01,
    "rescaled_mean": 0.2,
    "rescaled_low": 0.19,
    "rescaled_high": 0.24,
    "rescaled_p_value": 0.3,
    "singletons": 11,
    "clusters": 4,
    "cluster_size_least": 2,
    "cluster_size_median": 3.5,
    "cluster_size_most": 9,
}


@pytest.fixture
def results() -> Results:
    return evaluation_results()


@pytest.fixture(scope="module")
def page() -> str:
    """The page of the stored results, drawn."""
    return render_evaluation(evaluation_results())


def one_of(results: Results, name: str) -> Experiment:
    return next(one for one in results["experiments"] if one["name"] == name)


def test_it_is_self_contained_and_escaped(page: str) -> None:
    check_self_contained(page)
    check_ids(page, 30)
    assert "<b>one</b>" not in page


def test_every_experiment_has_its_section_its_table_and_a_csv(results: Results, page: str) -> None:
    tables = evaluation_tables(results)
    for one in results["experiments"]:
        assert one["title"] in section(page, one["name"])
        assert tables[one["name"]].count("\n") == len(one["points"]) + 1
        assert "<table" in page.split(f'id="{one["name"]}"')[1].split("</section>", maxsplit=1)[0]


def test_figures_of_several_maps_are_panels_of_their_own(results: Results, page: str) -> None:
    figures = evaluation_figures(results)
    assert figures.keys() == {*FIGURES, "accuracy_rejection"}
    assert list(figures["algorithm1_diagram"]) == [f"algorithm1_diagram-{name}" for name in MAPS]
    for name in ("projection_reliability", "naive_diagram", "algorithm1_diagram", "correctness_diagram"):
        assert [page.count(f'aria-labelledby="{name}-{one}-title') for one in MAPS] == [1] * len(MAPS)


def test_the_verdict_is_on_top_and_what_to_know_right_below(results: Results) -> None:
    results["verdict"] = ["A gain of -0.280 nats.", "It <b>is</b> calibrated.", "Its lambda_max ranks them."]
    few = "Only 15 of 120 answers are right."
    results["cautions"], results["warnings"] = (
        [{"code": "few_right", "text": few}],
        [few, "Not run: nothing."],
    )
    page = render_evaluation(results)
    boxes = re.findall(r'<section[^>]*aria-labelledby="([^"]+)"', page)
    assert boxes[:3] == ["verdict", "warnings", "rows"]
    assert "A gain of −0.280 nats. It <b>is</b> calibrated. Its λmax ranks them." in section(page, "verdict")
    assert section(page, "warnings").count(few) == 1


def test_every_ece_stands_beside_its_nulls(results: Results) -> None:
    for name in ("projection_reliability", "algorithm1_diagram"):
        headline = one_of(results, name)["headline"]
        headline |= {f"raw_{key}": value for key, value in NULLS.items() if f"raw_{key}" in headline}
    page = render_evaluation(results)
    assert "ece band p value" in section(page, "projection_reliability")
    assert "Raw 0.217 0.150 (0.120 to 0.180) 0.010" in section(page, "projection_reliability")
    both = "Raw 0.217 0.150 (0.120 to 0.180) 0.010 20 0.200 (0.190 to 0.240) 0.300 20 11 4 2 3.500 9"
    assert both in section(page, "algorithm1_diagram")
    assert "Raw 8 5 " in section(page, "sensitivity")


def test_the_claim_stands_where_its_table_is(results: Results) -> None:
    one_of(results, "co_minimised")["headline"]["claim"] = "The claim fails: the risk is lowest at T = 4."
    told = section(render_evaluation(results), "co_minimised")
    assert told.index("The claim fails") < told.index("eigenvalue ece scaled")


def test_what_did_not_run_says_why_and_has_no_figure(results: Results) -> None:
    left_out = not_drawn("The files hold supplied samples only.")
    results["experiments"] = [
        left_out if one["name"] == "sampling_temperature" else one for one in results["experiments"]
    ]
    assert "sampling_temperature" not in evaluation_tables(results)
    told = section(render_evaluation(results), "sampling_temperature")
    assert "Not run: The files hold supplied samples only." in told


def test_no_ece_is_called_best(page: str) -> None:
    for name in ("projection_reliability", "algorithm1_diagram", "sensitivity", "co_minimised"):
        assert "best" not in section(page, name).lower()


def test_where_it_comes_from(results: Results, page: str) -> None:
    text = words(page)
    assert "1e-10" in section(page, "risk_and_entropy")
    for known in ("dev.jsonl", "0" * 64, "an/embedder (revision r1, d = 24", "1e-10", "2026-11-01 12:30 UTC"):
        assert known in text
    assert "not known: the answers came with the files" in text
    assert number(results["dev"]["distinct_mean"], 1) in text


def test_numbers_are_typeset() -> None:
    said = "T = 4, from -0.3 to 1.2; all-mpnet-base-v2, 3-4 of lambda_max (p = 0.1)"
    assert typeset(said) == (
        "T\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}4, from −0.3 to 1.2; all-mpnet-base-v2, 3-4 of λmax "
        "(p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.1)"
    )
