"""Line plots of an evaluation: rows of an experiment to inline SVG."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.domain.study.model import Experiment, TableRow
from service.report.drawing import GREY, LOOKS, WIDE, Look, Plot, draw
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SECOND, THIRD = Look("#0072B2", "o", (0, (5, 1.8))), Look("#009E73", "D", (0, (1, 1.2)))
FIRST = Look("#D55E00", "^", "solid")
HEAD_ROOM = 2.2  # risks beyond this many times the least are a wall that hides the rest


def column(rows: Sequence[TableRow], name: str) -> list[float]:
    """Return a column as floats, NaN where null or, in results of earlier releases, absent."""
    return [float(value) if isinstance(value := row.get(name), int | float) else float("nan") for row in rows]


def figure(experiment: Experiment, key: str) -> float | None:
    """Return a figure of the headline, None where it is missing or no number."""
    value = experiment["headline"].get(key)
    return float(value) if isinstance(value, int | float) else None


def _plot(experiment: Experiment, words: str) -> Plot:
    return Plot(f"evaluation-{experiment['name']}", experiment["title"], words, WIDE)


def convergence(experiment: Experiment) -> str:
    """Return lambda_max by number of answers with its deviation between subsets."""
    rows = experiment["points"]
    x, y, spread = (column(rows, name) for name in ("num_samples", "mean", "deviation"))
    told = "; ".join(
        f"{a:.0f} answers: {number(b)} ± {number(c)}" for a, b, c in zip(x, y, spread, strict=True)
    )

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        axes.errorbar(x, y, spread, color="black", marker="s", capsize=4, elinewidth=1.2)
        axes.annotate(number(y[0], 2), (x[0], y[0]), (7, 4), textcoords="offset points", fontsize=9)
        axes.annotate(number(y[-1], 2), (x[-1], y[-1]), (5, 5), textcoords="offset points", fontsize=9)
        axes.set(ylim=(0, 1.02), xlim=(0, max(x) * 1.12), xlabel="answers per prompt", ylabel="raw λmax")
        axes.set_xticks(x)

    return draw(_plot(experiment, f"{told}."), paint)


def _log_temperature(axes: "Axes", low: float, high: float) -> None:
    places = [t for t in (0.1, 0.25, 0.5, 1, 2, 4, 10, 30) if low <= t <= high]
    axes.set(xscale="log", xlim=(low, high), xlabel="temperature T (log scale)")
    axes.set_xticks(places, [f"{t:g}" for t in places])
    axes.set_xticks([], minor=True)


def _mark(axes: "Axes", place: float | None, text: str) -> None:
    if place is None:
        return
    axes.axvline(place, color=GREY, linewidth=0.9, linestyle=":")
    low, high = axes.get_xlim()
    along = math.log(place / low) / math.log(high / low) if axes.get_xscale() == "log" else place / high
    right = along > 0.75
    side, gap = ("right", -5) if right else ("left", 5)
    axes.annotate(
        text,
        (place, axes.get_ylim()[1]),
        (gap, -2),
        textcoords="offset points",
        ha=side,
        va="top",
        weight="bold",
        fontsize=9.5,
    )


def _lines(axes: "Axes", x: list[float], lines: Sequence[tuple[str, list[float], Look]]) -> None:
    """Draw the lines so that those which lie on one another all show: dotted ones wide, and below."""
    for name, y, look in lines:
        below = look is THIRD
        axes.plot(
            x,
            y,
            color=look.colour,
            linestyle=look.dashes,
            linewidth=4.5 if below else None,
            zorder=1.5 if below else None,
            label=name,
        )


def constant(experiment: Experiment) -> str:
    """Return the risk of the constant predictor against temperature: lowest at 1."""
    rows, best = experiment["points"], figure(experiment, "best_temperature")
    x, risks, entropy = (column(rows, name) for name in ("temperature", "risk", "entropy"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        _lines(axes, x, [("risk", risks, FIRST), ("entropy", entropy, SECOND)])
        axes.set(ylabel="nats", ylim=(0, 2 * min(risks)))
        _log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="lower right")
        _mark(axes, best, f"lowest: T = {number(best, 3)}")

    return draw(_plot(experiment, f"Risk is lowest at T = {number(best, 4)}."), paint)


def risk_and_entropy(experiment: Experiment) -> str:
    """Return risk on both files and entropy on dev against temperature."""
    rows, best = experiment["points"], figure(experiment, "temperature")
    x, dev, entropy, test = (
        column(rows, name) for name in ("temperature", "dev_risk", "dev_entropy", "test_risk")
    )

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        _lines(
            axes,
            x,
            [("risk, dev", dev, FIRST), ("entropy, dev", entropy, SECOND), ("risk, test", test, THIRD)],
        )
        axes.set(ylabel="nats", ylim=(0, HEAD_ROOM * max(min(dev), min(test))))
        _log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="lower left")
        _mark(axes, best, f"fit: T = {number(best, 2)}")

    return draw(_plot(experiment, f"Risk and entropy meet at T = {number(best, 2)}."), paint)


def depolarized(experiment: Experiment) -> str:
    """Return risk on both files against the missing mass g."""
    rows, best = experiment["points"], figure(experiment, "depolarization")
    x, dev, test = (column(rows, name) for name in ("depolarization", "dev_risk", "test_risk"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        _lines(axes, x, [("risk, dev", dev, FIRST), ("risk, test", test, THIRD)])
        top = max(1.8 * min(dev), 1.1 * max(dev), 1.1 * max(test))  # nothing here is a wall
        axes.set(xlabel="missing mass g", ylabel="nats", xlim=(0, 1), ylim=(0, top))
        axes.legend(frameon=False, loc="lower left")
        _mark(axes, best, f"fit: g = {number(best, 2)}")

    return draw(_plot(experiment, f"Risk on dev is lowest at g = {number(best, 2)}."), paint)


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
        _log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="upper center")

    return draw(_plot(experiment, f"{told}."), paint)


def rejection(experiment: Experiment) -> str:
    """Return the accuracy of what is kept against the share rejected, by lambda_max."""
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    maps = list(dict.fromkeys(str(row["map"]) for row in rows))
    areas = "; ".join(f"{MAPS[m]}: {number(figure(experiment, f'{m}_lambda_max_area'))}" for m in maps)

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        for name in maps:
            mine, look = [row for row in rows if row["map"] == name], LOOKS[name]
            x, y = column(mine, "rejected"), column(mine, "accuracy")
            axes.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                markevery=6,
                clip_on=False,
                label=MAPS[name],
            )
        axes.axhline(figure(experiment, "accuracy") or 0.0, color=GREY, linewidth=0.9)
        axes.set(xlim=(0, 1), ylim=(0, max(axes.get_ylim()[1], 0.1)), ylabel="share right among the kept")
        axes.set_xlabel("share rejected, least certain first")
        axes.legend(frameon=False, loc="upper left")

    return draw(_plot(experiment, f"Areas: {areas}."), paint)


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
        _mark(axes, figure(experiment, "sampling_temperature"), "chosen")

    told = "; ".join(f"{a:g}: {number(b)}" for a, b in zip(x, y, strict=True))
    return draw(_plot(experiment, f"{told}."), paint)
