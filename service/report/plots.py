"""The plots of a report: numbers to inline SVG, one function each."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.domain.study.report_model import (
    Bin,
    ParametersAt,
    RejectionCurve,
    SamplesAt,
    ServedRow,
    TemperatureCurve,
)
from service.report.drawing import GREY, LIGHT, LOOKS, PANEL, WIDE, Plot, draw
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HALO = 1.96  # standard errors of a 95 % band
ALONG: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
FEWEST = 10  # answers left where an accuracy-rejection curve ends: fewer say nothing
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def half_width(one: Bin) -> float:
    """Return how far a bin of a calibrated map strays from the diagonal in 95 of 100 cases, at most.

    What is averaged lies in [0, 1] with mean p, so its variance is p (1 - p) at most, as that of a coin's.
    """
    p = min(max(one["predicted"], 0.0), 1.0)
    return HALO * math.sqrt(p * (1 - p) / one["count"]) if one["count"] else 0.0


def reliability(kind: str, name: str, bins: Sequence[Bin], found: str, note: str, *, band: bool) -> str:
    """Return one reliability diagram. found: what the y axis shows; note: a line under the title."""
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot(f"{kind}-{name}", f"{MAPS[name]}: {found} against λmax. {note}", f"Bins: {points}.", PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        _unit_square(axes)
        if band and bins:
            _band(axes, bins)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9)
        axes.text(1.0, 0.985, "perfect", color=GREY, fontsize=8.5, ha="right", va="top", **ALONG)
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
    x = [b["predicted"] for b in bins]
    low = [max(b["predicted"] - half_width(b), 0.0) for b in bins]
    high = [min(b["predicted"] + half_width(b), 1.0) for b in bins]
    axes.fill_between(x, low, high, color=LIGHT, linewidth=0)
    axes.vlines(x, low, high, color="#bdbdbd", linewidth=1)


def _bins(axes: "Axes", name: str, bins: Sequence[Bin]) -> None:
    look = LOOKS[name]
    x, y = [b["predicted"] for b in bins], [b["observed"] for b in bins]
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False)


def algorithm1_bands(rows: Sequence[ServedRow]) -> str:
    """Return the ECE of Algorithm 1 of each map beside what it reads under perfect calibration."""
    told = "; ".join(f"{MAPS[r['map']]} {number(r['algorithm1_ece'])}" for r in rows)
    plot = Plot("algorithm1-bands", "Algorithm 1 ECE beside its band under perfect calibration", f"{told}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            _ece_and_band(axes, place, row)
        axes.set_yticks(range(len(rows)), [MAPS[r["map"]] for r in rows])
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, 1.08 * axes.get_xlim()[1]))
        axes.set(xlabel="ECE of Algorithm 1, beside its band")

    return draw(plot, paint)


def _ece_and_band(axes: "Axes", place: int, row: ServedRow) -> None:
    band, look = row["algorithm1_band"], LOOKS[row["map"]]
    if band["low"] is not None and band["high"] is not None:
        axes.barh(place, band["high"] - band["low"], left=band["low"], height=0.36, color="#c9c9c9")
        middle = (band["low"] + band["high"]) / 2
        axes.text(middle, place + 0.22, "if perfect", ha="center", va="top", fontsize=8.5, color=GREY)
    if row["algorithm1_ece"] is None:
        axes.text(0.01, place, "—", va="center")
        return
    axes.plot(
        row["algorithm1_ece"], place, color=look.colour, marker=look.marker, markersize=9, clip_on=False
    )
    found = number(row["algorithm1_ece"])
    axes.text(
        row["algorithm1_ece"], place - 0.2, found, ha="center", va="bottom", weight="bold", fontsize=9.5
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
