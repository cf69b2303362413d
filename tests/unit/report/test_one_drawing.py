"""A diagram of a report and of an evaluation, from the same study, shows the same."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from service.calibration.fitting import fit_all
from service.evaluation import plots as curves
from service.evaluation import plots as panels
from service.evaluation.experiments import convergence, projection, rejection, temperature
from service.report import plots
from service.report.diagnostics import CrossValidated, make_split
from service.report.report import curves as curves_of
from tests.support.reports import small_material

ROWS = 10**9  # of a report whose rejection curves are not cut


@pytest.fixture(scope="module")
def bench() -> CrossValidated:
    material = small_material()
    return CrossValidated(make_split(material), fit_all(material, "depolarized"))


def drawn(monkeypatch: pytest.MonkeyPatch, module: ModuleType, make: Callable[[], object]) -> Axes:
    """The axes of a plot as they are drawn."""
    figure = Figure(layout="constrained")
    monkeypatch.setattr(module, "draw", lambda _, paint: paint(figure))
    make()
    [axes] = figure.axes
    return axes


def marks(axes: Axes) -> list[tuple[object, ...]]:
    """What is seen of each line: where it goes, its colour, marker and dashes."""
    return [
        (
            np.round(np.array(line.get_xydata(), dtype=float), 9).tolist(),
            line.get_color(),
            line.get_marker(),
            line.get_linestyle(),
        )
        for line in axes.lines
    ]


def test_they_are_the_same_to_the_line(bench: CrossValidated, monkeypatch: pytest.MonkeyPatch) -> None:
    report = curves_of(bench)
    bins = report["projection"]["raw"]
    pairs: list[tuple[Callable[[], object], ModuleType, Callable[[], object]]] = [
        (lambda: plots.samples(report["samples"]), curves, lambda: curves.convergence(convergence(bench))),
        (
            lambda: plots.rejection(report["rejection"], ROWS),
            curves,
            lambda: curves.rejection(rejection(bench)),
        ),
        (
            lambda: plots.reliability("projection", "raw", bins, "found", "ECE"),
            panels,
            lambda: panels.reliability(projection(bench), "raw"),
        ),
    ]
    for of_report, module, of_evaluation in pairs:
        first = drawn(monkeypatch, plots, of_report)
        second = drawn(monkeypatch, module, of_evaluation)
        assert marks(first) == marks(second)
        assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
        assert len(first.collections) == len(second.collections)


def test_an_evaluation_adds_the_risk_on_test_to_the_lines_of_a_report(
    bench: CrossValidated, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, experiment = curves_of(bench)["temperature"], temperature(bench)
    first = marks(drawn(monkeypatch, plots, lambda: plots.temperature(report)))
    second = marks(drawn(monkeypatch, curves, lambda: curves.risk_and_entropy(experiment)))
    assert [line for line in second if line not in first] == [second[2]]
    assert all(line in second for line in first)
