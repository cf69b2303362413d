"""Line plots of an evaluation: rows of an experiment to inline SVG."""

from typing import TYPE_CHECKING

from service.report import drawing as diagrams
from service.report.drawing import (
    FIRST,
    LOOKS,
    SECOND,
    THIRD,
    WIDE,
    Plot,
    column,
    draw,
    lines,
    log_temperature,
    mark,
)
from service.report.model import Experiment, RejectionCurve
from service.report.page import answers_plot
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
import math
from collections.abc import Mapping, Sequence

from service.report.drawing import GREY, NULL_A, NULL_B, null_bar
from service.report.model import TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from collections.abc import Callable

import numpy as np

from service.report.drawing import TICKS


def figure(experiment: Experiment, key: str) -> float | None:
    """Return a figure of the headline, None where it is missing or no number."""
    value = experiment["headline"].get(key)
    return float(value) if isinstance(value, int | float) else None


def _plot(experiment: Experiment, words: str) -> Plot:
    return Plot(f"evaluation-{experiment['name']}", experiment["title"], words, WIDE)


def convergence(experiment: Experiment) -> str:
    """Return lambda_max by number of answers with its deviation between subsets."""
    rows = experiment["points"]
    plot = _plot(experiment, diagrams.samples_words(rows))
    return draw(plot, lambda drawn: diagrams.samples(drawn.add_subplot(), rows))


def constant(experiment: Experiment) -> str:
    """Return the risk of the constant predictor against temperature: lowest at 1."""
    rows, best = experiment["points"], figure(experiment, "best_temperature")
    x, risks, entropy = (column(rows, name) for name in ("temperature", "risk", "entropy"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        lines(axes, x, [("risk", risks, FIRST), ("entropy", entropy, SECOND)])
        # Beyond twice the lowest lies a wall that would flatten the rest; a lowest of 0 has no such scale.
        axes.set(ylabel="nats", ylim=(0, 2 * min(risks) or None))
        log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="lower right")
        mark(axes, best, f"lowest: T = {number(best, 3)}")

    return draw(_plot(experiment, f"Risk is lowest at T = {number(best, 4)}."), paint)


def risk_and_entropy(experiment: Experiment) -> str:
    """Return risk on both files and entropy on dev against temperature."""
    rows, best = experiment["points"], figure(experiment, "temperature")
    x, dev, entropy, test = (
        column(rows, name) for name in ("temperature", "dev_risk", "dev_entropy", "test_risk")
    )
    risks = [("risk, dev", dev, FIRST), ("risk, test", test, THIRD)]

    def paint(drawn: "Figure") -> None:
        diagrams.risk_and_entropy(drawn.add_subplot(), x, risks, ("entropy, dev", entropy, SECOND), best)

    return draw(_plot(experiment, f"Risk and entropy meet at T = {number(best, 2)}."), paint)


def depolarized(experiment: Experiment) -> str:
    """Return risk on both files against the depolarisation g."""
    rows, best = experiment["points"], figure(experiment, "depolarization")
    x, dev, test = (column(rows, name) for name in ("depolarization", "dev_risk", "test_risk"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        lines(axes, x, [("risk, dev", dev, FIRST), ("risk, test", test, THIRD)])
        top = max(1.8 * min(dev), 1.1 * max(dev), 1.1 * max(test))  # nothing here is a wall
        axes.set(xlabel="depolarisation g", ylabel="nats", xlim=(0, 1), ylim=(0, top))
        axes.legend(frameon=False, loc="lower left")
        mark(axes, best, f"fit: g = {number(best, 2)}")

    return draw(_plot(experiment, f"Risk on dev is lowest at g = {number(best, 2)}."), paint)


def evidence_map(experiment: Experiment) -> str:
    """Return the mean test risk with and without evidence against the missing mass."""
    rows = experiment["points"]
    x = column(rows, "missing_mass")
    risks = {name: column(rows, f"test_risk_{name}") for name in ("depolarized", "evidence")}

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        for name, y in risks.items():
            look = LOOKS[name]
            axes.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                label=MAPS[name],
                clip_on=False,
            )
        axes.set(xlabel="missing mass u, mean of group", ylabel="test risk, nats", xlim=(0, 1))
        axes.set_ylim(0, 1.25 * max(max(y) for y in risks.values()))
        axes.legend(frameon=False, loc="lower right")

    told = "; ".join(f"{u:.2f}: {number(a)}, {number(b)}" for u, a, b in zip(x, *risks.values(), strict=True))
    return draw(_plot(experiment, f"Missing mass: risk depolarized, evidence. {told}."), paint)


def cominimised(experiment: Experiment) -> str:
    """Return Cal_S, risk and eigenvalue ECE, each scaled from its least (0) to its most (1)."""
    rows = experiment["points"]
    names = {"cal_s": ("Cal_S", FIRST), "risk": ("risk", SECOND), "eigenvalue_ece": ("eigenvalue ECE", THIRD)}
    x = column(rows, "temperature")
    told = "; ".join(
        f"{name} lowest at T = {number(figure(experiment, f'{key}_lowest_at'), 2)}"
        for key, (name, _) in names.items()
    )

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        for key, (name, look) in names.items():
            y = column(rows, f"{key}_scaled")
            axes.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                markersize=4.5,
                clip_on=False,
                label=name,
            )
        axes.set(ylabel="scaled: least 0, most 1", ylim=(-0.04, 1.04))
        log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="upper center")

    return draw(_plot(experiment, f"{told}."), paint)


def rejection(experiment: Experiment) -> str:
    """Return the accuracy of what is kept against the share rejected, by lambda_max."""
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    curves: list[RejectionCurve] = []
    for name in dict.fromkeys(str(row["map"]) for row in rows):
        mine = [row for row in rows if row["map"] == name]
        rejected, accuracy = column(mine, "rejected"), column(mine, "accuracy")
        curves.append({"map": name, "rejected": rejected, "accuracy": accuracy})
    areas = "; ".join(
        f"{MAPS[c['map']]}: {number(figure(experiment, c['map'] + '_lambda_max_area'))}" for c in curves
    )
    plot = _plot(experiment, f"Areas: {areas}.")
    return draw(plot, lambda drawn: diagrams.rejection(drawn.add_subplot(), curves))


def answers(experiment: Experiment) -> str:
    """Return the loss that decides how many answers are enough, by number of answers."""
    return answers_plot("evaluation-answers", experiment["points"], experiment["headline"])


def sampling_temperature(experiment: Experiment) -> str:
    """Return the ECE of the largest semantic class's share on dev against the sampling temperature."""
    rows = experiment["points"]
    x, y = column(rows, "sampling_temperature"), column(rows, "class_share_ece")

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        axes.plot(x, y, color="black", marker="s")
        axes.set(
            xlabel="sampling temperature", ylabel="ECE of the largest class's share, dev", ylim=(0, None)
        )
        mark(axes, figure(experiment, "sampling_temperature"), "chosen")

    told = "; ".join(f"{a:g}: {number(b)}" for a, b in zip(x, y, strict=True))
    return draw(_plot(experiment, f"{told}."), paint)


# Forest plots of an evaluation: figures with their intervals, one line each.

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


# Panels of an evaluation, one per map: reliability, sensitivity, similarity.
#
# Side by side in one figure, for a file; or one alone (`only`), for a page that stacks them on a phone.

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
