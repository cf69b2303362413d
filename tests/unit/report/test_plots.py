"""Positions of elements in the plots."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from service.report import plots
from tests.support.reports import deciding_report


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return the axes of a plot."""

    def axes_of(make: Callable[..., str], *arguments: Any, **options: Any) -> Any:
        figure = Figure(layout="constrained")
        monkeypatch.setattr(plots, "draw", lambda _, paint: paint(figure))
        make(*arguments, **options)
        [axes] = figure.axes
        return axes

    return axes_of


def bins(*bands: tuple[float | None, float | None]) -> list[dict[str, Any]]:
    return [
        {
            "lower": 0.0,
            "upper": 1.0,
            "count": 15,
            "predicted": 0.1 * (i + 1),
            "observed": 0.5,
            "band_low": low,
            "band_high": high,
        }
        for i, (low, high) in enumerate(bands)
    ]


def test_band_is_the_null_clipped_to_the_unit_square(painted: Any) -> None:
    bins_ = bins((-0.05, 0.21), (0.13, 0.28), (0.2, 1.4))
    axes = painted(plots.p_correct, {"diagram": bins_}, "raw")
    vertices = np.concatenate([path.vertices for path in axes.collections[0].get_paths()])
    corners = {(round(x, 9), round(y, 9)) for x, y in vertices}
    assert {(0.1, 0.0), (0.1, 0.21), (0.2, 0.13), (0.2, 0.28), (0.3, 0.2), (0.3, 1.0)} <= corners


def test_bins_without_a_band_are_drawn(painted: Any) -> None:
    unknown = bins((None, None), (None, None))
    axes = painted(plots.p_correct, {"diagram": unknown}, "raw")
    assert not axes.collections
    assert list(axes.lines[-1].get_ydata()) == [0.5, 0.5]


def test_projection_shows_raw_scores_and_the_calibration(painted: Any) -> None:
    parts = {"raw": {"ece": 0.3, "bins": bins((None, None))}, "evidence": {"ece": 0.1, "bins": bins((0, 1))}}
    axes = painted(plots.projection, parts, "evidence")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["calibrated", "raw"]


def test_lines_and_points_of_the_p_correct_plots(painted: Any) -> None:
    part = deciding_report()["correctness"]
    axes = painted(plots.risk_coverage, part)
    assert [line.get_label() for line in axes.lines[:2]] == ["observed", "upper bound, 90 %"]
    reached = {promise["threshold"] for promise in part["promises"] if promise["threshold"] is not None}
    assert len(axes.lines) == 2 + len(reached)  # one point for all targets of one threshold
    assert not painted(plots.p_correct, part, "evidence").lines[-1].get_clip_on()
