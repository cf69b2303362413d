"""The page of an evaluation: the verdict on top, every ECE beside its nulls, the claim by its figure."""

import copy
import re
from html import unescape
from typing import Any

import pytest

from service.evaluation.page import evaluation_figures, render_evaluation
from service.report.model import MAPS, Results, ran
from service.report.words import typeset

NULLS = ("band_mean", "p_value", "draws", "rescaled", "singletons", "cluster")
CLAIM = "The paper's claim fails on these files: the risk is lowest at T = 4, the eigenvalue ECE at 2."


def headline(name: str) -> dict[str, Any]:
    found = {
        "ece": 0.217,
        "band_mean": 0.15,
        "band_low": 0.12,
        "band_high": 0.18,
        "p_value": 0.01,
        "draws": 100,
        "rescaled_mean": 0.2,
        "rescaled_low": 0.19,
        "rescaled_high": 0.24,
        "rescaled_p_value": 0.3,
        "rescaled_draws": 100,
        "singletons": 11,
        "clusters": 4,
        "cluster_size_least": 2,
        "cluster_size_median": 3.5,
        "cluster_size_most": 9,
    }
    return {f"{name}_{key}": value for key, value in found.items()}


def bins(name: str, **more: Any) -> list[dict[str, Any]]:
    ends = {"band_low": 0.1, "band_high": 0.4, "rescaled_low": 0.3, "rescaled_high": 0.6, **more}
    return [{"map": name, "predicted": 0.2 * i, "observed": 0.5, "ece": 0.2, **ends} for i in (1, 2, 3)]


def results() -> Results:
    of_maps = {key: value for name in MAPS for key, value in headline(name).items()}
    drawn = [row for name in MAPS for row in bins(name)]
    settings = [{**row, "bins": 8, "clusters": 5} for row in drawn]
    measures = ("cal_s", "risk", "eigenvalue_ece")
    lowest = {f"{m}_lowest_at": t for m, t in zip(measures, (4.0, 4.0, 2.0), strict=True)}
    curve = [{"temperature": t, **{f"{m}_scaled": s for m in measures}} for t, s in ((1.0, 0.0), (4.0, 1.0))]
    part: Any = {
        "rows": 45,
        "used": 45,
        "answers_in_file": 8,
        "distinct_mean": 4.0,
        "correct_from": "rouge_l",
        "accuracy": 0.5,
    }
    few = "Only 15 of 120 answers are right."
    return {
        "version": 1,
        "num_samples": 8,
        "seed": 0,
        "embedders": ["one"],
        "meanings": "stand-in",
        "dev": part,
        "test": part,
        "experiments": [
            ran("projection_reliability", "Projection", of_maps, drawn),
            ran("algorithm1_diagram", "Algorithm 1", of_maps, drawn),
            ran(
                "sensitivity",
                "Sensitivity",
                {f"{n}_{k}": 0.2 for n in MAPS for k in ("least", "most")},
                settings,
            ),
            ran("co_minimised", "Claim", {**lowest, "claim": CLAIM}, curve),
        ],
        "warnings": [few, "Not run: nothing."],
        "verdict": ["A gain of -0.280 nats.", "It <b>is</b> calibrated.", "Its lambda_max tells them apart."],
        "cautions": [{"code": "few_right", "text": few}],
    }


def of_before() -> Results:
    """Results as an earlier release left them: no verdict, no cautions, no nulls but the first band."""
    found = copy.deepcopy(results())
    del found["verdict"], found["cautions"]
    for one in found["experiments"]:
        one["headline"].pop("claim", None)
        for row in (one["headline"], *one["points"]):
            for key in [key for key in row if any(part in key for part in NULLS) and key != "clusters"]:
                del row[key]
    return found


def words(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page.split("</style>", 1)[1])))


def section(page: str, name: str) -> str:
    [found] = re.findall(rf'<section[^>]*aria-labelledby="{name}">.*?</section>', page, re.DOTALL)
    return words(f"</style>{found}")


@pytest.fixture(scope="module")
def page() -> str:
    return render_evaluation(results())


def test_the_verdict_is_on_top_and_what_to_know_right_below(page: str) -> None:
    boxes = re.findall(r'<section[^>]*aria-labelledby="([^"]+)"', page)
    assert boxes[:3] == ["verdict", "warnings", "rows"]
    told = section(page, "verdict")
    assert "A gain of −0.280 nats. It <b>is</b> calibrated. Its λmax tells them apart." in told
    assert section(page, "warnings").split("To know first ")[1].strip() == (
        "Only 15 of 120 answers are right. Not run: nothing."
    )


def test_the_claim_stands_where_its_figure_is(page: str) -> None:
    told = section(page, "co_minimised")
    assert "The paper's claim fails on these files: the risk is lowest at T = 4" in told
    assert told.index("claim fails") < told.index("Lowest at T:") < told.index("What it says")


def test_every_ece_is_told_with_its_nulls(page: str) -> None:
    assert "Raw 0.217 0.150 (0.120 to 0.180) 0.010 Temperature" in section(page, "projection_reliability")
    told = section(page, "algorithm1_diagram")
    assert "Raw 0.217 (references drawn 0.120 to 0.180, rescaled 0.190 to 0.240)" in told
    both = "Raw 0.217 0.150 (0.120 to 0.180) 0.010 0.200 (0.190 to 0.240) 0.300 4 2 to 9 3.5 11"
    assert both in told
    assert "no map of eigenvalues can mend" in told
    assert "what a map can be blamed for" in told


def test_sensitivity_says_in_how_many_settings_a_map_can_be_blamed() -> None:
    found = results()
    [experiment] = [one for one in found["experiments"] if one["name"] == "sensitivity"]
    experiment["points"][0]["ece"] = 0.7
    told = (
        "Above the band of references rescaled: Raw 1 of 3, Temperature 0 of 3, Depolarized 0 of 3, "
        "Evidence 0 of 3 settings."
    )
    assert told in section(render_evaluation(found), "sensitivity")


@pytest.mark.parametrize("name", ["algorithm1_diagram", "sensitivity"])
def test_both_nulls_are_drawn(name: str) -> None:
    """Another second null, another figure: it is in the picture."""
    one, other = results(), results()
    for experiment in other["experiments"]:
        for row in experiment["points"]:
            row.update({"rescaled_high": 0.55} if "rescaled_high" in row else {})
    assert evaluation_figures(one)[name] != evaluation_figures(other)[name]


def test_no_ece_is_called_best(page: str) -> None:
    for name in ("projection_reliability", "algorithm1_diagram", "sensitivity", "co_minimised"):
        assert "best" not in section(page, name).lower()


def test_results_of_before_are_still_a_page() -> None:
    page = render_evaluation(of_before())
    assert re.findall(r'<section[^>]*aria-labelledby="([^"]+)"', page)[:2] == ["warnings", "rows"]
    told = section(page, "projection_reliability")
    assert "bands are of an earlier release, about twice too wide" in told
    assert "Raw 0.217 0.150" not in told
    assert "Raw 0.217 (references drawn 0.120 to 0.180)," in section(page, "algorithm1_diagram")
    assert "nan" not in words(page).lower().split()
    assert section(page, "co_minimised").count("claim fails") == 0


def test_numbers_are_typeset() -> None:
    said = "T = 4, from -0.3 to 1.2; all-mpnet-base-v2, 3-4 of lambda_max (p = 0.1)"
    assert typeset(said) == (
        "T\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}4, from −0.3 to 1.2; all-mpnet-base-v2, 3-4 of λmax "
        "(p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.1)"
    )
