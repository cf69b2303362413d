"""Forest plots of an evaluation: figures with their intervals, one line each."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.domain.study.model import Experiment, TableRow
from service.report.drawing import GREY, LOOKS, Plot, draw
from service.report.evaluation.curves import column
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.9  # inches: letters stay readable on a phone
SCORES = {"lambda_max": "λmax", "entropy": "entropy"}
FIGURES = {
    "cv_risk": "risk, dev, cross-validated (nats)",
    "test_risk": "risk, test (nats)",
    "projection_brier": "projection Brier, test",
    "projection_ece": "projection ECE, test",
    "auroc_lambda_max": "AUROC of λmax, test",
}


def _intervals(
    axes: "Axes", rows: Sequence[TableRow], value: str, names: Sequence[str], colours: Sequence[str]
) -> None:
    low, high, middle = column(rows, "low"), column(rows, "high"), column(rows, value)
    for place, (a, b, x, colour) in enumerate(zip(low, high, middle, colours, strict=True)):
        axes.plot([a, b], [place, place], color=colour, linewidth=1.6)
        axes.plot(x, place, color=colour, marker="o")
    axes.set_yticks(range(len(rows)), list(names))
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _told(rows: Sequence[TableRow], value: str, names: Sequence[str]) -> str:
    ends = zip(names, column(rows, value), column(rows, "low"), column(rows, "high"), strict=True)
    return "; ".join(f"{name}: {number(x)} ({number(a)} to {number(b)})" for name, x, a, b in ends) + "."


def auroc(experiment: Experiment) -> str:
    """Return the AUROC of both scores of every map."""
    rows = experiment["points"]
    names = [f"{SCORES[str(row['score'])]}, {MAPS[str(row['map'])]}" for row in rows]
    colours = [LOOKS[str(row["map"])].colour for row in rows]
    return _aurocs(experiment, names, colours)


def baselines(experiment: Experiment) -> str:
    """Return the AUROC of every score, ours in colour."""
    rows = experiment["points"]
    names = [_named(str(row["score"])) for row in rows]
    colours = [_colour(str(row["score"])) for row in rows]
    return _aurocs(experiment, names, colours)


def _named(score: str) -> str:
    kind, _, name = score.partition(" (")
    return f"{SCORES[kind]}, {MAPS[name.rstrip(')')]}" if kind in SCORES else score


def _colour(score: str) -> str:
    return next((look.colour for name, look in LOOKS.items() if score.endswith(f"({name})")), GREY)


def _aurocs(experiment: Experiment, names: list[str], colours: list[str]) -> str:
    rows = experiment["points"]
    size = (WIDTH, 0.9 + 0.29 * len(rows))
    words = _told(rows, "auroc", names)
    plot = Plot(f"evaluation-{experiment['name']}", experiment["title"], words, size)

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        axes.axvline(0.5, color=GREY, linewidth=0.9, linestyle=":")
        _intervals(axes, rows, "auroc", names, colours)
        low = min([0.45, *filter(math.isfinite, column(rows, "low"))])
        axes.set(xlim=(low, 1.0), xlabel="AUROC, 95 % interval")

    return draw(plot, paint)


def comparison(experiment: Experiment) -> str:
    """Return the differences between maps, one panel per figure."""
    rows = experiment["points"]
    figures = [f for f in FIGURES if any(row["figure"] == f for row in rows)]
    names = [_pair(row) for row in rows]
    words = _told(
        rows, "difference", [f"{FIGURES[str(r['figure'])]}, {n}" for r, n in zip(rows, names, strict=True)]
    )
    plot = Plot("evaluation-comparison", experiment["title"], words, (WIDTH, 1.25 * len(figures)))

    def paint(drawn: "Figure") -> None:
        for axes, name in zip(drawn.subplots(len(figures), 1, squeeze=False)[:, 0], figures, strict=True):
            mine = [row for row in rows if row["figure"] == name]
            axes.axvline(0, color=GREY, linewidth=0.9)
            _intervals(axes, mine, "difference", [_pair(r) for r in mine], ["#0072B2"] * len(mine))
            axes.set_title(FIGURES[name], loc="left", fontsize=9.5)

    return draw(plot, paint)


def _pair(row: TableRow) -> str:
    return f"{MAPS[str(row['second'])]} − {MAPS[str(row['first'])]}"


def embedders(experiment: Experiment) -> str:
    """Return projection ECE, eigenvalue ECE and AUROC by embedder and map."""
    rows = experiment["points"]
    panels = {
        "projection_ece": "projection ECE",
        "algorithm1_ece": "eigenvalue ECE",
        "auroc": "AUROC of λmax",
    }
    names = list(dict.fromkeys(str(row["embedder"]) for row in rows))
    told = "; ".join(f"{r['embedder']}, {r['map']}: {number(_value(r))}" for r in rows)
    plot = Plot(
        "evaluation-embedders",
        experiment["title"],
        f"Projection ECE. {told}.",
        (WIDTH, 0.6 + len(panels) * (0.6 + 0.3 * len(names))),
    )

    def paint(drawn: "Figure") -> None:
        all_axes = drawn.subplots(len(panels), 1)
        for axes, (key, title) in zip(all_axes, panels.items(), strict=True):
            for row in rows:
                look, value = LOOKS[str(row["map"])], row[key]
                if isinstance(value, float):
                    place = names.index(str(row["embedder"]))
                    axes.plot(value, place, color=look.colour, marker=look.marker, linestyle="none")
            axes.set_yticks(range(len(names)), names)
            axes.set(ylim=(len(names) - 0.5, -0.5), xlabel=title)
            _from_nothing(axes, key)
        handles = [
            all_axes[0].plot([], [], color=k.colour, marker=k.marker, linestyle="none", label=MAPS[n])[0]
            for n, k in LOOKS.items()
            if n != "active"
        ]
        drawn.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False, fontsize=9)

    return draw(plot, paint)


def _from_nothing(axes: "Axes", key: str) -> None:
    """Show the axis from what a worthless AUROC, or a perfect ECE, would be."""
    low, high = axes.get_xlim()
    axes.set_xlim(min(0.5, low) if key == "auroc" else 0, high)


def _value(row: TableRow) -> float | None:
    value = row["projection_ece"]
    return float(value) if isinstance(value, int | float) else None
