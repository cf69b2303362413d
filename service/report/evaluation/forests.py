"""Forest plots of an evaluation: figures with their intervals, one line each."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from service.domain.study.model import Experiment, TableRow
from service.report.diagrams import NULL_A, NULL_B, column, null_bar
from service.report.drawing import GREY, LOOKS, Plot, draw
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
    axes.set_ylim(len(rows) - 0.5, -0.5)  # upside down: the first row on top


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


# Panel: its title, the figure's column, and the columns of its bars: by colour, those of its nulls.
EMBEDDERS = {
    "projection_ece": ("projection ECE, and where calibrated scores read", {"projection_band": NULL_A}),
    "algorithm1_ece": (
        "eigenvalue ECE, and both of its nulls",
        {"algorithm1_band": NULL_A, "algorithm1_rescaled": NULL_B},
    ),
    "auroc": ("AUROC of λmax, 95 % interval", {}),
}


def embedders(experiment: Experiment) -> str:
    """Return both ECEs with their nulls, and AUROC with its interval, by embedder and map."""
    rows = experiment["points"]
    names = list(dict.fromkeys(str(row["embedder"]) for row in rows))
    shown = list(dict.fromkeys(str(row["map"]) for row in rows))
    size = (WIDTH, 0.6 + len(EMBEDDERS) * (0.7 + 0.55 * len(names)))
    plot = Plot("evaluation-embedders", experiment["title"], _embedders_told(rows), size)

    def paint(drawn: "Figure") -> None:
        all_axes = drawn.subplots(len(EMBEDDERS), 1)
        for axes, (key, (title, nulls)) in zip(all_axes, EMBEDDERS.items(), strict=True):
            for row in rows:
                place = names.index(str(row["embedder"])) + _offset(str(row["map"]), shown)
                _figure_of_map(axes, row, key, nulls, place, 0.66 / len(shown))
            axes.set_yticks(range(len(names)), names)
            axes.set(ylim=(len(names) - 0.5, -0.5), xlabel=title)
            _from_nothing(axes, key)
        handles = [
            all_axes[0].plot([], [], color=k.colour, marker=k.marker, linestyle="none", label=MAPS[n])[0]
            for n, k in ((name, LOOKS[name]) for name in shown)
        ]
        drawn.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)

    return draw(plot, paint)


def _offset(name: str, shown: Sequence[str]) -> float:
    """Return how far a map lies below the middle of its line, in lines: maps stand below one another."""
    return 0.84 / len(shown) * (shown.index(name) - (len(shown) - 1) / 2)


def _figure_of_map(
    axes: "Axes", row: TableRow, key: str, nulls: Mapping[str, str], place: float, room: float
) -> None:
    """Draw a figure above the bars of its nulls, in so much room, or with its interval."""
    look, height = LOOKS[str(row["map"])], room / max(len(nulls), 1)
    for number_of, (null, colour) in enumerate(nulls.items()):
        [low], [high] = column([row], f"{null}_low"), column([row], f"{null}_high")
        null_bar(axes, place + height * (number_of + 0.5) - room / 2, low, high, colour, height)
    ends = [*column([row], f"{key}_low"), *column([row], f"{key}_high")]
    axes.plot(ends, [place, place], color=look.colour, linewidth=1.6)
    axes.plot(column([row], key), place, color=look.colour, marker=look.marker, linestyle="none")


def _embedders_told(rows: Sequence[TableRow]) -> str:
    told = zip(
        rows,
        column(rows, "projection_ece"),
        column(rows, "projection_band_low"),
        column(rows, "projection_band_high"),
        strict=True,
    )
    said = (
        f"{r['embedder']}, {r['map']}: {number(x)} (if calibrated {number(low)} to {number(high)})"
        for r, x, low, high in told
    )
    return f"Projection ECE. {'; '.join(said)}."


def _from_nothing(axes: "Axes", key: str) -> None:
    """Show the axis from what a worthless AUROC, or a perfect ECE, would be."""
    low, high = axes.get_xlim()
    axes.set_xlim(min(0.5, low) if key == "auroc" else 0, high)
