"""The plots of reports and evaluations, as inline SVG: one function per plot."""

import io
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from service.report.words import MAPS, Part, number, share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches. Three panels fit in a row. Both sizes keep letters readable on a phone and on A4.
PANEL = (3.0, 3.05)
WIDE = (4.4, 3.2)
ABOVE: dict[str, Any] = {"frameon": False, "loc": "lower left", "bbox_to_anchor": (0, 1), "fontsize": 9}
GREY, LIGHT = "#595959", "#dcdcdc"
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, readable aloud, in the reader's fonts
    "font.family": "sans-serif",
    # Part of matplotlib, and wide: the reader's own font needs less room.
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
    """How a map looks in plots: an Okabe-Ito color, plus a marker and dashes that work without color."""

    color: str
    marker: str
    dashes: Any


LOOKS = {
    "raw": Look("#000000", "s", (0, (1, 1.2))),
    "temperature": Look("#D55E00", "^", (0, (5, 1.8))),
    "depolarized": Look("#0072B2", "o", "solid"),
    "evidence": Look("#CC79A7", "v", (0, (3, 1, 1, 1))),
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot's texts and size. `name` prefixes its ids; screen readers read `title` and `description`.

    size: (width, height) in inches.
    """

    name: str
    title: str
    description: str
    size: tuple[float, float] = WIDE


def draw(plot: Plot, paint: Callable[["Figure"], None]) -> str:
    """Return the plot as an SVG element. Equal plots give equal bytes. The ids are unique on the page."""
    from matplotlib import style
    from matplotlib.figure import Figure

    out = io.StringIO()
    # Without a salt and with a date, ids and bytes would differ from one drawing to the next.
    # `after_reset` ignores this machine's matplotlibrc.
    with _lock, style.context([STYLE | {"svg.hashsalt": plot.name}], after_reset=True):
        # Not pyplot, which keeps every figure until it is closed.
        figure = Figure(figsize=plot.size, layout="constrained")
        paint(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue(), plot)


def _inline(svg: str, plot: Plot) -> str:
    """Return an SVG file as an inline element: without file headers, with prefixed ids and a description."""
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


ALONG: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
TICKS = ([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])


def points_of(bins: Sequence[Part]) -> str:
    """Return the points of bins in words."""
    points = (f"{number(row['predicted'], 2)}: {number(row['observed'], 2)}" for row in bins)
    return f"Bins: {'; '.join(points)}."


def paint_bins(
    axes: "Axes", map_name: str, bins: Sequence[Part], xlabel: str, diagonal: str, label: str = ""
) -> None:
    """Paint the bins in the look of their map, above the null's band if known, and the diagonal.

    diagonal: label of the diagonal. label: of the line, in the legend.
    """
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=xlabel)
    axes.set_xticks(*TICKS)
    axes.set_yticks(*TICKS)
    bands = [
        (row["predicted"], max(row["band_low"], 0.0), min(row["band_high"], 1.0))
        for row in bins
        if row["band_low"] is not None and row["band_high"] is not None
    ]
    if bands:
        x, low, high = zip(*bands, strict=True)
        axes.fill_between(x, low, high, color=LIGHT, linewidth=0)
        axes.vlines(x, low, high, color="#bdbdbd", linewidth=1)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9)
    axes.text(1.0, 0.985, diagonal, color=GREY, fontsize=8.5, ha="right", va="top", **ALONG)
    predicted, observed = [row["predicted"] for row in bins], [row["observed"] for row in bins]
    look_line(axes, LOOKS[map_name], predicted, observed, label=label)


def look_line(axes: "Axes", look: Look, x: Sequence[float], y: Sequence[float], **more: Any) -> None:
    """Paint a line in the look of its map. Lines are not clipped, so markers on the frame are whole."""
    axes.plot(x, y, color=look.color, marker=look.marker, linestyle=look.dashes, clip_on=False, **more)


def projection(parts: Mapping[str, Part], method: str) -> str:
    """Return the projection reliability diagram of a map, over the band of its null, and of raw scores."""
    ours, raw = parts[method], parts["raw"]
    title = f"Share of the reference against λmax. {MAPS[method]}: ECE {number(ours['ece'])}"
    plot = Plot("projection", f"{title}, raw: ECE {number(raw['ece'])}", points_of(ours["bins"]), PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share of the reference")
        paint_bins(axes, method, ours["bins"], "λmax, mean of bin", "perfect", label="calibrated")
        predicted, observed = ([row[name] for row in raw["bins"]] for name in ("predicted", "observed"))
        look_line(axes, LOOKS["raw"], predicted, observed, label="raw", zorder=1.9)
        axes.legend(**ABOVE, ncols=2)

    return draw(plot, paint)


def p_correct(part: Part, method: str) -> str:
    """Return the plot of the share of right answers against P(correct), in the look of the method's map."""
    bins = part["diagram"]
    plot = Plot("p-correct", "Share of right answers against P(correct)", points_of(bins), PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share of right answers")
        paint_bins(axes, method, bins, "P(correct), mean of bin", "perfect")

    return draw(plot, paint)


def risk_coverage(part: Part) -> str:
    """Return the plot of the error among the answers let through, and its bound, against coverage.

    Points mark the thresholds of the target errors.
    """
    rows, kept = part["risk_coverage"], _kept_share(part["promises"])
    words = "; ".join(f"{name}: {share(at)} let through" for name, at, _ in kept) or "No target is reached"
    plot = Plot("risk-coverage", "Error among the answers let through", f"{words}.", PANEL)
    return draw(plot, lambda figure: _paint_coverage(figure.add_subplot(), rows, kept, part["confidence"]))


def _kept_share(promises: Sequence[Part]) -> list[tuple[str, float, float]]:
    """Return (targets, coverage, smallest target) of each threshold. Targets may share a threshold."""
    reached = [promise for promise in promises if promise["threshold"] is not None]
    groups = [list(group) for _, group in groupby(reached, key=lambda promise: promise["threshold"])]
    return [
        (
            ", ".join(share(promise["target_error"]) for promise in group),
            group[0]["coverage"],
            group[0]["target_error"],
        )
        for group in groups
    ]


def _paint_coverage(
    axes: "Axes", rows: Sequence[Part], kept: Sequence[tuple[str, float, float]], confidence: float
) -> None:
    x, errors, bounds = ([row[name] for row in rows] for name in ("coverage", "error", "bound"))
    axes.plot(x, errors, color="black", label="observed")
    axes.plot(x, bounds, color=GREY, linestyle=(0, (4, 2)), label=f"upper bound, {share(confidence)}")
    for name, at, target in kept:
        axes.plot(at, target, color="#0072B2", marker="o", markersize=7, clip_on=False)
        above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(name, (at, target), (0, 8), **above)
    axes.set(xlim=(0, 1.1), ylim=(0, 1.02), xlabel="share of answers let through")
    axes.set_xticks(*TICKS)
    axes.set_ylabel("share of wrong answers")
    # Above the frame, because points and their labels may be anywhere inside.
    axes.legend(**ABOVE)
