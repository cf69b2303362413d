"""Panels of an evaluation, one per map: reliability, sensitivity, similarity.

Side by side in one figure, for a file; or one alone (`only`), for a page that stacks them on a phone.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from service.domain.study.model import Experiment, TableRow
from service.report import diagrams
from service.report.diagrams import NULL_A, NULL_B, TICKS, column, null_bar
from service.report.drawing import GREY, LOOKS, Plot, draw
from service.report.evaluation.curves import figure
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOUND = {
    "projection_reliability": "share of the reference",
    "correctness_diagram": "share of right answers",
}
Paint = Callable[["Axes", str, list[TableRow]], None]  # axes, map, its rows


def _by_map(rows: Sequence[TableRow]) -> dict[str, list[TableRow]]:
    names = dict.fromkeys(str(row["map"]) for row in rows)
    return {name: [row for row in rows if row["map"] == name] for name in names}


def maps_of(experiment: Experiment) -> list[str]:
    """Return the maps that have a panel, in their order."""
    return list(_by_map(experiment["points"]))


def _panels(
    experiment: Experiment, words: str, height: float, paint_one: Paint, left: str, only: str | None
) -> str:
    all_groups = _by_map(experiment["points"])
    groups = all_groups if only is None else {only: all_groups[only]}
    name = "-".join(["evaluation", experiment["name"], *([only] if only else [])])
    title = f"{experiment['title']}: {MAPS[only]}" if only else experiment["title"]
    plot = Plot(name, title, words, (2.9 * max(len(groups), 1), height))

    def paint(drawn: "Figure") -> None:
        # squeeze=False: a single panel would come without its array.
        axes = drawn.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for one, (name, rows) in zip(axes, groups.items(), strict=True):
            paint_one(one, name, rows)
        axes[0].set_ylabel(left)

    return draw(plot, paint)


def reliability(experiment: Experiment, only: str | None = None) -> str:
    """Return predicted against observed by map, with the band of its null; of Algorithm 1 with both."""
    name = experiment["name"]

    def paint(axes: "Axes", map_name: str, rows: list[TableRow]) -> None:
        ece = f"ECE {number(figure(experiment, f'{map_name}_ece'))}"
        on_it = name == "projection_reliability"
        diagrams.reliability(axes, map_name, rows, ece, calibrated_lie_on_it=on_it)

    found = FOUND.get(name, "target of the clusters")
    return _panels(experiment, _eces(experiment), 3.3 if only else 3.75, paint, found, only)


def _eces(experiment: Experiment) -> str:
    return "; ".join(_ece(experiment, name) for name in _by_map(experiment["points"])) + "."


def _ece(experiment: Experiment, name: str) -> str:
    ece, low, high, second_low, second_high = (
        figure(experiment, f"{name}_{key}")
        for key in ("ece", "band_low", "band_high", "rescaled_low", "rescaled_high")
    )
    told = f"{MAPS[name]}: ECE {number(ece)}, band {number(low)} to {number(high)}"
    if second_low is None or second_high is None:
        return told
    return f"{told}, of references rescaled {number(second_low)} to {number(second_high)}"


def sensitivity(experiment: Experiment, only: str | None = None) -> str:
    """Return the eigenvalue ECE of each setting above the bands of both nulls, a light, b dark."""
    points = experiment["points"]
    farthest = [x for name in ("ece", "band_high", "rescaled_high") for x in column(points, name)]
    right = 1.08 * float(np.nanmax([0.33, *farthest]))

    def paint(axes: "Axes", name: str, rows: list[TableRow]) -> None:
        look, places = LOOKS[name], range(len(rows))
        _null_bars(axes, [place - 0.16 for place in places], rows, "band", NULL_A)
        _null_bars(axes, [place + 0.16 for place in places], rows, "rescaled", NULL_B)
        axes.plot(column(rows, "ece"), places, color=look.colour, marker=look.marker, linestyle="none")
        axes.set_yticks(places, [f"B = {row['bins']}, C = {row['clusters']}" for row in rows])
        axes.set(xlim=(0, right), ylim=(len(rows) - 0.5, -0.5), xlabel="eigenvalue ECE")
        axes.set_title(MAPS[name], loc="left")

    told = "; ".join(
        f"{MAPS[n]}: {number(figure(experiment, f'{n}_least'))} to {number(figure(experiment, f'{n}_most'))}"
        for n in _by_map(experiment["points"])
    )
    return _panels(experiment, f"{told}.", 3.3, paint, "", only)


def _null_bars(axes: "Axes", places: list[float], rows: list[TableRow], null: str, colour: str) -> None:
    ends = zip(places, column(rows, f"{null}_low"), column(rows, f"{null}_high"), strict=True)
    for place, low, high in ends:
        null_bar(axes, place, low, high, colour, 0.3)


def similarity(experiment: Experiment, only: str | None = None) -> str:
    """Return mean cosines of pairs within bins and within clusters."""
    everywhere = figure(experiment, "all_pairs")

    def paint(axes: "Axes", name: str, rows: list[TableRow]) -> None:
        x = column(rows, "predicted")
        axes.plot(x, column(rows, "within_cluster"), color="#0072B2", marker="o", label="within clusters")
        axes.plot(
            x,
            column(rows, "within_bin"),
            color="#D55E00",
            marker="^",
            linestyle=(0, (5, 1.8)),
            label="within bins",
        )
        if everywhere is not None:
            axes.axhline(everywhere, color=GREY, linewidth=0.9, linestyle=":", label="all pairs")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="λmax served, mean of bin")
        axes.set_xticks(*TICKS)
        axes.set_title(MAPS[name], loc="left")
        axes.legend(frameon=False, loc="upper left", fontsize=9)

    return _panels(experiment, f"All pairs: {number(everywhere)}.", 3.0, paint, "mean Frobenius cosine", only)
