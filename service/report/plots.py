"""The plots of a report and of an evaluation: rows of numbers to inline SVG, one function each.

Rows are mappings, as a report stores them (`Bin`, `SamplesAt`) or an experiment's table has them.
"""

import io
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from service.report.model import (
    CorrectnessPart,
    PromiseAt,
    RejectionCurve,
    RiskAt,
    TemperatureCurve,
)
from service.report.words import MAPS, number, share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches. A panel is one of three in a row; both keep their letters readable on a phone and on A4.
PANEL = (3.0, 3.05)
WIDE = (4.4, 3.2)
GREY, LIGHT = "#595959", "#dcdcdc"
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # letters stay letters: searchable, read aloud, in the fonts of the reader
    "font.family": "sans-serif",
    # Comes with matplotlib, and is wide: what replaces it takes less room.
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}
# matplotlib's settings are global to the process, and pages are rendered in threads.
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Look:
    """How a map is told apart: an Okabe-Ito colour, and without colour by marker and dashes."""

    colour: str
    marker: str
    dashes: Any


LOOKS = {
    "raw": Look("#000000", "s", (0, (1, 1.2))),
    "temperature": Look("#D55E00", "^", (0, (5, 1.8))),
    "depolarized": Look("#0072B2", "o", "solid"),
    "evidence": Look("#CC79A7", "v", (0, (3, 1, 1, 1))),
    "active": Look("#009E73", "D", (0, (6, 1.5, 1, 1.5))),
}


# Lines that are no maps: risks, entropies, calibration errors.
FIRST = Look("#D55E00", "^", "solid")
SECOND = Look("#0072B2", "o", (0, (5, 1.8)))
THIRD = Look("#009E73", "D", (0, (1, 1.2)))


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot in words: `name` prefixes its ids, `title` and `description` are read aloud."""

    name: str
    title: str
    description: str
    size: tuple[float, float] = WIDE


def draw(plot: Plot, paint: Callable[["Figure"], None]) -> str:
    """Return an SVG element. Equal plots give equal bytes; its ids are unique on the page."""
    from matplotlib import style
    from matplotlib.figure import Figure

    out = io.StringIO()
    # The salt and no date: otherwise ids and bytes differ from one drawing to the next.
    # `after_reset`: whatever a matplotlibrc of this machine says.
    with _lock, style.context([STYLE | {"svg.hashsalt": plot.name}], after_reset=True):
        # Not by pyplot, which keeps every figure until it is closed.
        figure = Figure(figsize=plot.size, layout="constrained")
        paint(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue(), plot)


def _inline(svg: str, plot: Plot) -> str:
    """Drop what only a file needs, name the parts after the plot, and say in words what is shown."""
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]*"', body)
    assert view is not None
    body = body[body.index(">", body.index("<svg")) + 1 :]
    body = re.sub(r'(?<= id=")', f"{plot.name}-", body)
    body = re.sub(r"url\(#", f"url(#{plot.name}-", body)
    body = body.replace('xlink:href="#', f'href="#{plot.name}-')
    body = re.sub(r"font: ([^;\"]*?)(\d[\d.]*px) [^;\"]*", r"font: \1\2 system-ui, sans-serif", body)
    label = f"{plot.name}-title {plot.name}-desc"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{label}" {view[0]}>'
    title = f'<title id="{plot.name}-title">{escape(plot.title)}</title>'
    words = f'<desc id="{plot.name}-desc">{escape(plot.description)}</desc>'
    return "\n".join(line for line in f"{head}{title}{words}{body}".splitlines() if line.strip())


Row = Mapping[str, object]
Line = tuple[str, Sequence[float], Look]  # name, values, look
Rows = Sequence[Row]
ALONG: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
TICKS = ([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])
HEAD_ROOM = 2.2  # risks beyond this many times the least are a wall that hides the rest
MIN_KEPT = 10  # answers left where an accuracy-rejection curve ends: fewer say nothing
ANSWERS_SIZE = (4.4, 3.0)


def column(rows: Rows, name: str) -> list[float]:
    """Return a column as floats, NaN where null."""
    return [float(value) if isinstance(value := row[name], int | float) else math.nan for row in rows]


def reliability(name: str, map_name: str, rows: Rows, ylabel: str, note: str, *, to_diagonal: bool) -> str:
    """Return one reliability diagram. note: a line under the title; to_diagonal: see `paint_reliability`."""
    points = "; ".join(f"{number(x, 2)}: {number(y, 2)}" for x, y in _points(rows))
    title = f"{MAPS[map_name]}: {ylabel} against λmax. {note}"
    plot = Plot(f"{name}-{map_name}", title, f"Bins: {points}.", PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel=ylabel)
        paint_reliability(axes, map_name, rows, note, to_diagonal=to_diagonal)

    return draw(plot, paint)


def _points(rows: Rows) -> list[tuple[float, float]]:
    return list(zip(column(rows, "predicted"), column(rows, "observed"), strict=True))


def paint_reliability(axes: "Axes", map_name: str, rows: Rows, note: str, *, to_diagonal: bool) -> None:
    """Paint predicted against observed by bins of a map, above its null's band; of Algorithm 1 with both.

    note: a line under the title. to_diagonal: whether a calibrated map lies on the diagonal.
    """
    _unit_square(axes, rows, "λmax served, mean of bin", "perfect" if to_diagonal else "equal")
    for end in ("rescaled_low", "rescaled_high"):
        if any(row.get(end) is not None for row in rows):
            axes.plot(
                column(rows, "predicted"), column(rows, end), color=GREY, linewidth=1.1, linestyle=(0, (4, 2))
            )
    _look_line(axes, LOOKS[map_name], column(rows, "predicted"), column(rows, "observed"))
    axes.set_title(f"{MAPS[map_name]}\n", loc="left")
    axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9.5)


def _unit_square(axes: "Axes", rows: Rows, xlabel: str, word: str) -> None:
    """Paint what is below every reliability diagram: the band of its bins where known, and the diagonal.

    word: what lies on the diagonal.
    """
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=xlabel)
    axes.set_xticks(*TICKS)
    axes.set_yticks(*TICKS)
    if known := [row for row in rows if row["band_low"] is not None and row["band_high"] is not None]:
        _band(axes, known)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9)
    axes.text(1.0, 0.985, word, color=GREY, fontsize=8.5, ha="right", va="top", **ALONG)


def _band(axes: "Axes", rows: Rows) -> None:
    """Paint where bins lie under calibration: the ends of the null, cut to the unit square."""
    x = column(rows, "predicted")
    low = [max(value, 0.0) for value in column(rows, "band_low")]
    high = [min(value, 1.0) for value in column(rows, "band_high")]
    axes.fill_between(x, low, high, color=LIGHT, linewidth=0)
    axes.vlines(x, low, high, color="#bdbdbd", linewidth=1)


def _look_line(axes: "Axes", look: Look, x: Sequence[float], y: Sequence[float], **more: Any) -> None:
    """Paint a line in the look of its map; not clipped, so that markers on the frame are whole."""
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False, **more)


def rejection(curves: Sequence[RejectionCurve], size: int) -> str:
    """Return the accuracy of what is kept, out of `size` answers, against the share rejected."""
    curves = [_cut(curve, 1 - MIN_KEPT / size) for curve in curves]
    halves = "; ".join(f"{MAPS[c['map']]}: {_at_half(c)}" for c in curves)
    plot = Plot("rejection", "Accuracy of the kept answers against the share rejected", f"At half: {halves}.")
    return draw(plot, lambda figure: _paint_rejection(figure.add_subplot(), curves))


def _cut(curve: RejectionCurve, most: float) -> RejectionCurve:
    """Return the curve up to a share rejected; its first point always."""
    size = max(sum(one <= most for one in curve["rejected"]), 1)
    return {"map": curve["map"], "rejected": curve["rejected"][:size], "accuracy": curve["accuracy"][:size]}


def _at_half(curve: RejectionCurve) -> str:
    kept = [a for r, a in zip(curve["rejected"], curve["accuracy"], strict=True) if r >= 0.5]
    return number(kept[0] if kept else None)


def _paint_rejection(axes: "Axes", curves: Sequence[RejectionCurve]) -> None:
    """Paint the accuracy of what is kept against the share rejected, and that of all as a grey line."""
    for place, curve in enumerate(curves):
        # Curves may lie on one another: wide ones below, markers in turn, and all of them show.
        _look_line(
            axes,
            LOOKS[curve["map"]],
            curve["rejected"],
            curve["accuracy"],
            linewidth=3.2 - 0.6 * place,
            markevery=(2 * place, 8),
            label=MAPS[curve["map"]],
        )
    right = max((curve["rejected"][-1] for curve in curves), default=1.0)
    top = min(1.02, max(1.35 * axes.get_ylim()[1], 0.1))
    if curves:
        axes.axhline(curves[0]["accuracy"][0], color=GREY, linewidth=0.9, zorder=1.5, clip_on=False)
    axes.set(xlim=(0, max(right, 0.1)), ylim=(0, top), ylabel="share right among the kept")
    axes.set_xlabel("share rejected, least certain first")
    axes.legend(loc="upper left", frameon=False, handlelength=3.6, fontsize=9.5)


def temperature(curve: TemperatureCurve, test_risk: Sequence[float] | None = None) -> str:
    """Return risk and entropy of the paper's map against T, which meet at the optimum.

    test_risk: of another file at the same temperatures.
    """
    best, x = curve["optimum"], curve["temperatures"]
    words = f"They meet at T = {number(best, 2)}."
    plot = Plot("temperature", "Risk and entropy against temperature", words)
    lines: list[Line] = [("risk", curve["risk"], FIRST), ("entropy", curve["entropy"], SECOND)]
    if test_risk is not None:
        lines = [("risk, dev", curve["risk"], FIRST), ("entropy, dev", curve["entropy"], SECOND)]
        lines.append(("risk, test", test_risk, THIRD))

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for name, y, look in lines:
            # Lines that lie on one another all show: dotted ones wide, and below.
            wide: dict[str, Any] = {"linewidth": 4.5, "zorder": 1.5} if look is THIRD else {}
            axes.plot(x, y, color=look.colour, linestyle=look.dashes, label=name, **wide)
        least = max(min(y) for name, y, _ in lines if name.startswith("risk"))
        axes.set(ylabel="nats", ylim=(0, HEAD_ROOM * max(least, 0.1)))
        _log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="best")  # the wall of the risk is anywhere, as the fit is
        _mark(axes, best, f"fit: T = {number(best, 2)}")
        circle: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black"}
        axes.plot(best, min(curve["risk"]), marker="o", markersize=9, **circle)

    return draw(plot, paint)


def _log_temperature(axes: "Axes", low: float, high: float) -> None:
    """Make the x axis one of temperatures, on a log scale."""
    places = [t for t in (0.1, 0.25, 0.5, 1, 2, 4, 10, 30) if low <= t <= high]
    axes.set(xscale="log", xlim=(low, high), xlabel="temperature T (log scale)")
    axes.set_xticks(places, [f"{t:g}" for t in places])
    axes.set_xticks([], minor=True)


def _mark(axes: "Axes", place: float, text: str) -> None:
    """Mark a place of a log x axis by a dotted line with a text at its bottom, where there is room."""
    axes.axvline(place, color=GREY, linewidth=0.9, linestyle=":")
    low, high = axes.get_xlim()
    side, gap = ("right", -5) if math.log(place / low) / math.log(high / low) > 0.75 else ("left", 5)
    style: dict[str, Any] = {"ha": side, "va": "bottom", "weight": "bold", "fontsize": 9.5}
    axes.annotate(text, (place, axes.get_ylim()[0]), (gap, 4), textcoords="offset points", **style)


def samples(rows: Rows) -> str:
    """Return the raw lambda_max by number of answers, with its deviation between subsets of one prompt."""
    x, y, spread = (column(rows, name) for name in ("num_samples", "mean", "deviation"))
    points = list(zip(x, y, spread, strict=True))
    words = "; ".join(f"{m:.0f} answers: {number(mean)} ± {number(std)}" for m, mean, std in points)
    plot = Plot("samples", "Raw λmax by number of answers", f"{words}.", (WIDE[0], 3.0))

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        axes.errorbar(x, y, spread, color="black", marker="s", capsize=4, elinewidth=1.2)
        # More numbers would lie on the bars.
        for place, mean, _ in points if len(points) <= 6 else (points[0], points[-1]):
            _beside(axes, place, mean, number(mean, 2))
        axes.set(ylim=(0, 1.02), xlim=(min(x) - 1, max(x) * 1.12 + 0.5), xlabel="answers per prompt")
        axes.set_ylabel("raw λmax")
        axes.set_xticks(x if len(x) <= 8 else x[:: len(x) // 8 + 1])

    return draw(plot, paint)


def _beside(axes: "Axes", x: float, y: float, text: str) -> None:
    """Write a text beside a point."""
    axes.annotate(text, (x, y), (5, 5), textcoords="offset points", fontsize=9)


def p_correct(part: CorrectnessPart, method: str) -> str:
    """Return how often answers are right at each P(correct), in the look of the calibration's map."""
    bins = part["diagram"]
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot("p-correct", "Share of right answers against P(correct)", f"Bins: {points}.", (WIDE[0], 4.1))
    look = LOOKS[method]

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share of right answers")
        _unit_square(axes, bins, "P(correct), mean of bin", "perfect")
        x, y = ([one[name] for one in bins] for name in ("predicted", "observed"))
        axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False)

    return draw(plot, paint)


def risk_coverage(part: CorrectnessPart) -> str:
    """Return the error among the answers let through by coverage, its bound, and each target's threshold."""
    rows, kept = part["risk_coverage"], _kept_share(part["promises"])
    words = "; ".join(f"{name}: {share(at)} let through" for name, at, _ in kept) or "No target is reached"
    plot = Plot("risk-coverage", "Wrong ones among the answers let through", f"{words}.", (WIDE[0], 3.6))
    return draw(plot, lambda figure: _paint_coverage(figure.add_subplot(), rows, kept, part["confidence"]))


def _kept_share(promises: Sequence[PromiseAt]) -> list[tuple[str, float, float]]:
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


def _paint_coverage(
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
    axes.set_xticks(*TICKS)
    axes.set_ylabel("share wrong among them")
    # Above the frame: within it, points and their labels may be anywhere.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9, borderpad=0)


def answers(rows: Rows, score: str, recommended: int | None) -> str:
    """Return the loss of a score by number of answers and map, a dotted line at the recommended number.

    score: "probability_correct", whose loss decides, or "lambda_max".
    """
    # Not raw: its risk, charged with eps, would flatten the others.
    maps = ("evidence", "depolarized", "temperature")
    by_map = {name: [row for row in rows if (row["score"], row["map"]) == (score, name)] for name in maps}
    by_map = {name: mine for name, mine in by_map.items() if mine}
    correct = score == "probability_correct"
    measure = "Log loss of the verdicts" if correct else "Risk"
    words = "; ".join(f"{MAPS[name]}: {_losses(mine)}" for name, mine in by_map.items())
    plot = Plot("answers", f"{measure} by number of answers", f"{words}.", ANSWERS_SIZE)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="answers per prompt (log scale)", ylabel="nats")
        for name, mine in by_map.items():
            _paint_losses(axes, name, mine, _EVIDENCE[name == "evidence"] if correct else MAPS[name])
        sizes = sorted({x for mine in by_map.values() for x in column(mine, "num_samples")})
        low, high = axes.get_ylim()
        axes.set(xscale="log", ylim=(low, high + 0.3 * (high - low)))  # room for the legend
        axes.set_xticks(sizes, [f"{x:.0f}" for x in sizes])
        axes.set_xticks([], minor=True)
        if recommended is not None:
            axes.axvline(recommended, color="black", linewidth=0.9, linestyle=":")
        axes.legend(frameon=False, loc="upper right", fontsize=9)

    return draw(plot, paint)


_EVIDENCE = ("without log-probabilities", "with log-probabilities")


def _losses(rows: Rows) -> str:
    pairs = zip(column(rows, "num_samples"), column(rows, "loss"), strict=True)
    return ", ".join(f"{m:.0f}: {number(loss)}" for m, loss in pairs)


def _paint_losses(axes: "Axes", name: str, rows: Rows, label: str) -> None:
    x, y, low, high = (column(rows, key) for key in ("num_samples", "loss", "loss_low", "loss_high"))
    # Beside one another: intervals of two maps at one number of answers would hide each other.
    aside = {"evidence": 0.98, "depolarized": 1.0, "temperature": 1.02}[name]
    x = [value * aside for value in x]
    look = LOOKS[name]
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, label=label)
    axes.vlines(x, low, high, color=look.colour, linewidth=1.1)
