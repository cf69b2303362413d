"""A calibration's report is a selection of the study: one figure, and one interval, for one thing."""

import numpy as np
import pytest

from service.calibration.fitting import fit_all
from service.evaluation.experiments import (
    accuracy_kept as rejection,
)
from service.evaluation.experiments import (
    algorithm1_diagram,
    comparison,
    convergence,
    correctness,
    projection,
    temperature,
)
from service.evaluation.experiments import auroc_experiment as auroc
from service.evaluation.results import Experiment, TableRow
from service.report.diagnostics import CrossValidated, make_split
from service.report.model import Report
from service.spectral.resampling import mean_difference
from tests.support.reports import FEW, MADE, small_material


@pytest.fixture(scope="module")
def bench() -> CrossValidated:
    material = small_material()
    fitted = fit_all(material, "depolarized", resamples=FEW)
    return CrossValidated(make_split(material), fitted, resamples=FEW)


@pytest.fixture(scope="module")
def report() -> Report:
    made: Report = MADE["report"]()
    return made


def row_of(experiment: Experiment, **where: str) -> TableRow:
    [found] = [row for row in experiment["points"] if where.items() <= row.items()]
    return found


def test_the_interval_that_decides_is_the_paired_bootstrap_of_every_comparison(
    bench: CrossValidated, report: Report
) -> None:
    risks, random = bench.held_out.risks, np.random.default_rng([0, 3])
    found = mean_difference(risks["depolarized"], risks["raw"], random, resamples=FEW.difference)
    told = report["decision"]["difference"]
    assert (told["value"], told["low"], told["high"]) == (found.value, found.low, found.high)


def test_the_decision_rests_on_rows_of_the_comparison(bench: CrossValidated, report: Report) -> None:
    made, decision = comparison(bench), report["decision"]
    for figure, told in (
        ("cv_risk", decision["difference"]),
        ("projection_brier", decision["brier_difference"]),
    ):
        row = row_of(made, second="depolarized", first="raw", figure=figure)
        assert told == {"value": row["difference"], "low": row["low"], "high": row["high"]}


def test_every_figure_of_a_map_is_that_of_its_experiment(bench: CrossValidated, report: Report) -> None:
    ranked, by_projection, paper = auroc(bench), projection(bench)["headline"], algorithm1_diagram(bench)
    for row in report["served"]:
        name = row["map"]
        for score in ("lambda_max", "entropy"):
            of_score = row_of(ranked, map=name, score=score)
            told = row["auroc_lambda_max"] if score == "lambda_max" else row["auroc_entropy"]
            assert told == {"value": of_score["auroc"], "low": of_score["low"], "high": of_score["high"]}
        assert row["rejection_area"] == row_of(ranked, map=name, score="lambda_max")["rejection_area"]
        assert row["projection_ece"] == by_projection[f"{name}_ece"]
        assert row["projection_brier"] == by_projection[f"{name}_brier"]
        assert row["projection_null"]["p_value"] == by_projection[f"{name}_p_value"]
        assert row["algorithm1_ece"] == paper["headline"][f"{name}_ece"]
        assert row["algorithm1_rescaled"]["low"] == paper["headline"][f"{name}_rescaled_low"]
        assert row["singletons"] == paper["headline"][f"{name}_singletons"]


def test_every_curve_is_the_table_of_its_experiment(bench: CrossValidated, report: Report) -> None:
    curves = report["curves"]
    assert curves["samples"] == convergence(bench)["points"]
    assert curves["temperature"]["risk"] == [row["dev_risk"] for row in temperature(bench)["points"]]
    for drawn, experiment in (
        (curves["projection"], projection(bench)),
        (curves["algorithm1"], algorithm1_diagram(bench)),
        (curves["correctness"], correctness(bench)),
    ):
        for name, bins in drawn.items():
            rows = [row for row in experiment["points"] if row["map"] == name]
            assert [one["observed"] for one in bins] == [row["observed"] for row in rows]
            assert [one.get("band_high") for one in bins] == [row["band_high"] for row in rows]
    for curve in curves["rejection"]:
        rows = [row for row in rejection(bench)["points"] if row["map"] == curve["map"]]
        assert curve["accuracy"] == [row["accuracy"] for row in rows if row["score"] == "lambda_max"]


def test_each_prompt_is_judged_by_the_fold_that_held_it_out(bench: CrossValidated) -> None:
    maps, fold = bench.held_out.maps["depolarized"], bench.held_out.fold
    one = int(np.flatnonzero(fold == 3)[0])
    spectrum = bench.test.spectra[one]
    expected = maps[3].serve(spectrum.eigenvalues, spectrum.dimension).lambda_max
    assert bench.served["depolarized"].lambda_max[one] == pytest.approx(expected)
    assert len({maps[k] for k in range(5)}) > 1
