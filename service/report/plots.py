"""The plots of a report: numbers to inline SVG, one function each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.domain.study.report_model import (
    Band,
    Bin,
    NullPart,
    ParametersAt,
    RejectionCurve,
    SamplesAt,
    ServedRow,
    TemperatureCurve,
)
from service.report.drawing import GREY, LIGHT, LOOKS, PANEL, WIDE, Plot, draw
from service.report.nulls import algorithm1_words, known_band
from service.report.words import MAPS, MISSING, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALONG: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
FEWEST = 10  # answers left where an accuracy-rejection curve ends: fewer say nothing
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def reliability(kind: str, name: str, bins: Sequence[Bin], found: str, note: str) -> str:
    """Return one reliability diagram, with its band where the bins have one.

    found: what the y axis shows; note: a line under the title.
    """
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot(f"{kind}-{name}", f"{MAPS[name]}: {found} against λmax. {note}", f"Bins: {points}.", PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        _unit_square(axes)
        if known := known_band(bins):
            _band(axes, known)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9)
        word = "perfect" if kind == "projection" else "equal"  # elsewhere a calibrated map may lie off it
        axes.text(1.0, 0.985, word, color=GREY, fontsize=8.5, ha="right", va="top", **ALONG)
        _bins(axes, name, bins)
        axes.set_title(f"{MAPS[name]}\n", loc="left")
        axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9.5)
        axes.set(xlabel="λmax served, mean of bin", ylabel=found)

    return draw(plot, paint)


def _unit_square(axes: "Axes") -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set_xticks(TICKS, ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_yticks(TICKS, ["0", "0.25", "0.5", "0.75", "1"])


def _band(axes: "Axes", bins: Sequence[Bin]) -> None:
    """Draw where bins lie under calibration: the ends of the null, cut to the unit square."""
    x = [b["predicted"] for b in bins]
    low = [max(b["band_low"] or 0.0, 0.0) for b in bins]
    high = [min(b["band_high"] or 0.0, 1.0) for b in bins]
    axes.fill_between(x, low, high, color=LIGHT, linewidth=0)
    axes.vlines(x, low, high, color="#bdbdbd", linewidth=1)


def _bins(axes: "Axes", name: str, bins: Sequence[Bin]) -> None:
    look = LOOKS[name]
    x, y = [b["predicted"] for b in bins], [b["observed"] for b in bins]
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False)


def algorithm1_bands(rows: Sequence[ServedRow]) -> str:
    """Return the ECE of Algorithm 1 of each map above the bands of its two nulls, a and b."""
    told = " ".join(algorithm1_words(row) for row in rows)
    plot = Plot("algorithm1-bands", "Algorithm 1 ECE beside both of its nulls", told, (WIDE[0], 3.6))

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            _ece_and_bands(axes, place, row)
        axes.set_yticks(range(len(rows)), [MAPS[r["map"]] for r in rows])
        axes.set(ylim=(len(rows) - 0.5, -0.6), xlim=(0, 1.1 * axes.get_xlim()[1]))
        axes.set_xlabel("ECE of Algorithm 1\na: references drawn; b: real ones, rescaled")

    return draw(plot, paint)


def _ece_and_bands(axes: "Axes", place: int, row: ServedRow) -> None:
    _null_bar(axes, place + 0.08, row["algorithm1_band"], "a", "#c9c9c9")
    if "algorithm1_rescaled" in row:
        _null_bar(axes, place + 0.32, row["algorithm1_rescaled"], "b", "#8c8c8c")
    ece, look = row["algorithm1_ece"], LOOKS[row["map"]]
    if ece is None:
        axes.text(0.01, place, MISSING, va="center")
        return
    axes.vlines(ece, place - 0.16, place + 0.42, color=look.colour, linewidth=1)
    axes.plot(ece, place - 0.16, color=look.colour, marker=look.marker, markersize=8, clip_on=False)
    axes.annotate(
        number(ece), (ece, place - 0.16), (7, 0), textcoords="offset points", va="center", weight="bold"
    )


def _null_bar(axes: "Axes", place: float, band: Band | NullPart, name: str, colour: str) -> None:
    low, high = band["low"], band["high"]
    if low is None or high is None:
        return
    axes.barh(place, high - low, left=low, height=0.2, color=colour)
    axes.annotate(
        name, (high, place), (4, 0), textcoords="offset points", va="center", fontsize=9, color=GREY
    )


def rejection(curves: Sequence[RejectionCurve], size: int) -> str:
    """Return the accuracy of what is kept, out of `size` answers, against the share rejected."""
    curves = [_kept(curve, 1 - FEWEST / size) for curve in curves]
    told = "; ".join(f"{MAPS[c['map']]}: {_at_half(c)}" for c in curves)
    plot = Plot("rejection", "Accuracy of the kept answers against the share rejected", f"At half: {told}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for place, curve in enumerate(curves):
            _rejection_curve(axes, curve, place)
        right = max((curve["rejected"][-1] for curve in curves), default=1.0)
        axes.set(xlim=(0, max(right, 0.1)), ylabel="share right among the kept")
        axes.set_ylim(0, min(1.02, max(1.35 * axes.get_ylim()[1], 0.1)))
        axes.set_xlabel("share rejected, least certain first")
        axes.legend(loc="upper left", frameon=False, handlelength=3.6, fontsize=9.5)

    return draw(plot, paint)


def _kept(curve: RejectionCurve, most: float) -> RejectionCurve:
    """Return the curve up to a share rejected; its first point always."""
    size = max(sum(share <= most for share in curve["rejected"]), 1)
    return {"map": curve["map"], "rejected": curve["rejected"][:size], "accuracy": curve["accuracy"][:size]}


def _at_half(curve: RejectionCurve) -> str:
    kept = [a for r, a in zip(curve["rejected"], curve["accuracy"], strict=True) if r >= 0.5]
    return number(kept[0] if kept else None)


def _rejection_curve(axes: "Axes", curve: RejectionCurve, place: int) -> None:
    """Draw a curve so that those which lie on one another all show: wide ones below, markers in turn."""
    look = LOOKS[curve["map"]]
    axes.plot(
        curve["rejected"],
        curve["accuracy"],
        color=look.colour,
        linestyle=look.dashes,
        linewidth=3.2 - 0.6 * place,
        marker=look.marker,
        markevery=(2 * place, 8),
        clip_on=False,
        label=MAPS[curve["map"]],
    )


def temperature(curve: TemperatureCurve) -> str:
    """Return risk and entropy of the paper's map against T, which meet at the optimum."""
    best = number(curve["optimum"], 2)
    plot = Plot("temperature", "Risk and entropy against temperature", f"They meet at T = {best}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        grid, ours = curve["temperatures"], LOOKS["depolarized"]
        axes.plot(grid, curve["risk"], color=LOOKS["temperature"].colour, linestyle="solid")
        axes.plot(grid, curve["entropy"], color=ours.colour, linestyle=(0, (5, 1.8)))
        axes.set(xscale="log", xlim=(grid[0], grid[-1]), xlabel="temperature T (log scale)", ylabel="nats")
        axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        _limit(axes, curve)
        _optimum(axes, curve)
        _name_curves(axes, curve)

    return draw(plot, paint)


def _limit(axes: "Axes", curve: TemperatureCurve) -> None:
    """Show the neighbourhood of the optimum: at low T the risk is a wall."""
    axes.set_ylim(0, 3 * max(min(curve["risk"]), 0.1))


def _optimum(axes: "Axes", curve: TemperatureCurve) -> None:
    best, low = curve["optimum"], min(curve["risk"])
    axes.axvline(best, color=GREY, linewidth=0.9, linestyle=":")
    axes.plot(best, low, marker="o", markersize=9, markerfacecolor="white", markeredgecolor="black")
    right = best > curve["temperatures"][len(curve["temperatures"]) // 2] * 4
    axes.annotate(
        f"best: T = {number(best, 2)}",
        (best, axes.get_ylim()[1]),
        (-5 if right else 5, -2),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        weight="bold",
        fontsize=9.5,
    )


def _name_curves(axes: "Axes", curve: TemperatureCurve) -> None:
    top = axes.get_ylim()[1]
    first = next((i for i, r in enumerate(curve["risk"]) if r < 0.8 * top), 0)
    grid = curve["temperatures"]
    axes.annotate(
        "risk",
        (grid[first], curve["risk"][first]),
        (-6, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        color=LOOKS["temperature"].colour,
        weight="bold",
    )
    level = next((i for i, e in enumerate(curve["entropy"]) if e > 0.12 * top), 0)
    axes.annotate(
        "entropy",
        (grid[level], curve["entropy"][level]),
        (-8, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=LOOKS["depolarized"].colour,
        weight="bold",
    )


def samples(sizes: Sequence[SamplesAt]) -> str:
    """Return the raw λmax by number of answers, with its spread within a prompt."""
    told = "; ".join(
        f"{s['num_samples']} answers: {number(s['mean'])} ± {number(s['deviation'])}" for s in sizes
    )
    plot = Plot("samples", "Raw λmax by number of answers", f"{told}.", (WIDE[0], 3.0))

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        x = [s["num_samples"] for s in sizes]
        y, wide = [s["mean"] for s in sizes], [s["deviation"] for s in sizes]
        axes.errorbar(x, y, wide, color="black", marker="s", capsize=4, elinewidth=1.2)
        for one in sizes:
            _beside(axes, one["num_samples"], one["mean"], number(one["mean"], 2))
        axes.set(ylim=(0, 1.02), xlim=(min(x) - 1, max(x) * 1.12 + 0.5), xlabel="answers per prompt")
        axes.set_ylabel("raw λmax")
        axes.set_xticks(x if len(x) <= 8 else x[:: len(x) // 8 + 1])

    return draw(plot, paint)


def _beside(axes: "Axes", x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 5), textcoords="offset points", fontsize=9)


def parameters(table: Sequence[ParametersAt]) -> str:
    """Return T and, where the map has one, g by number of answers."""
    columns = _columns(table)
    first, last = table[0], table[-1]
    told = f"From {first['num_samples']} to {last['num_samples']} answers: "
    told += "; ".join(f"{name} from {number(y[0], 2)} to {number(y[-1], 2)}" for name, y in columns.items())
    plot = Plot("parameters", "Parameters by number of answers", f"{told}.", (WIDE[0], 1.9 * len(columns)))

    def paint(figure: "Figure") -> None:
        drawn = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
        looks = (LOOKS["temperature"], LOOKS["depolarized"])
        for axes, (name, y), look in zip(drawn, columns.items(), looks, strict=False):
            x = [p["num_samples"] for p in table]
            axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, markersize=4.5)
            axes.set_ylim(0, 1.25 * max(y) or 1)
            _beside(axes, x[-1], y[-1], number(y[-1], 2))
            axes.set_ylabel(name, rotation=0, weight="bold", labelpad=12)
            axes.set_xlim(min(x) - 0.5, max(x) * 1.1 + 0.3)
            axes.xaxis.get_major_locator().set_params(integer=True)
        drawn[-1].set_xlabel("answers per prompt")

    return draw(plot, paint)


def _columns(table: Sequence[ParametersAt]) -> Mapping[str, list[float]]:
    found = {"T": [p["temperature"] for p in table]}
    missing = [p["depolarization"] for p in table if p["depolarization"] is not None]
    return found | {"g": missing} if len(missing) == len(table) else found
