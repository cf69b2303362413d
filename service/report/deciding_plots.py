"""Figures of P(correct) in a report: how often it holds, and what thresholds on it let through."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from service.domain.study.report_model import CorrectnessPart, PromiseAt, RiskAt
from service.report import diagrams
from service.report.drawing import GREY, LOOKS, WIDE, Plot, draw
from service.report.words import number, share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def diagram(part: CorrectnessPart, method: str) -> str:
    """Return how often answers are right at each P(correct), in the look of the calibration's map."""
    bins = part["diagram"]
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot("p-correct", "Share of right answers against P(correct)", f"Bins: {points}.", (WIDE[0], 4.1))
    look = LOOKS[method]

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share of right answers")
        diagrams.unit_square(axes, bins, "P(correct), mean of bin", "perfect")
        x, y = ([one[name] for one in bins] for name in ("predicted", "observed"))
        axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False)

    return draw(plot, paint)


def curve(part: CorrectnessPart) -> str:
    """Return the error among the answers let through by coverage, its bound, and each target's threshold."""
    rows, kept = part["risk_coverage"], _kept(part["promises"])
    told = "; ".join(f"{name}: {share(at)} let through" for name, at, _ in kept) or "No target is reached"
    plot = Plot("risk-coverage", "Wrong ones among the answers let through", f"{told}.", (WIDE[0], 3.6))
    return draw(plot, lambda figure: _curve(figure.add_subplot(), rows, kept, part["confidence"]))


def _kept(promises: Sequence[PromiseAt]) -> list[tuple[str, float, float]]:
    """Return (targets, coverage, largest target) of each threshold; several targets may share one."""
    reached = [one for one in promises if one["threshold"] is not None]
    groups = [list(group) for _, group in groupby(reached, key=lambda one: one["threshold"])]
    return [
        (
            ", ".join(share(one["target_error"]) for one in group),
            group[0]["coverage"],
            group[0]["target_error"],
        )
        for group in groups
    ]


def _curve(
    axes: "Axes", rows: Sequence[RiskAt], kept: Sequence[tuple[str, float, float]], confidence: float
) -> None:
    x, errors, bounds = ([row[name] for row in rows] for name in ("coverage", "error", "bound"))
    axes.plot(x, errors, color="black", label="wrong, as counted")
    axes.plot(x, bounds, color=GREY, linestyle=(0, (4, 2)), label=f"at most, {share(confidence)} sure")
    for name, at, target in kept:
        axes.plot(at, target, color="#0072B2", marker="o", markersize=7, clip_on=False)
        above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(name, (at, target), (0, 8), **above)
    axes.set(xlim=(0, 1.1), ylim=(0, 1.02), xlabel="share of answers let through")
    axes.set_xticks(*diagrams.TICKS)
    axes.set_ylabel("share wrong among them")
    # Above the frame: within it, points and their labels may be anywhere.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9, borderpad=0)
