"""How plots look, and how a matplotlib figure becomes an inline SVG."""

import io
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
import math
from collections.abc import Mapping, Sequence

from service.report.model import RejectionCurve
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


# The diagrams that a report and an evaluation both draw: rows of a study onto matplotlib axes, once each.
#
# Rows are mappings, as a report stores them (`Bin`, `SamplesAt`) or an experiment's table has them.

Rows = Sequence[Mapping[str, object]]
ALONG: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
TICKS = ([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])
NULL_A, NULL_B = "#c9c9c9", "#8c8c8c"  # the two nulls of Algorithm 1: references drawn, real ones rescaled
HEAD_ROOM = 2.2  # risks beyond this many times the least are a wall that hides the rest


def column(rows: Rows, name: str) -> list[float]:
    """Return a column as floats, NaN where null or, in results of earlier releases, absent."""
    return [float(value) if isinstance(value := row.get(name), int | float) else math.nan for row in rows]


def known_band(rows: Rows) -> list[Mapping[str, object]]:
    """Return the bins whose band is known; those of earlier releases have none."""
    return [one for one in rows if one.get("band_low") is not None and one.get("band_high") is not None]


def reliability(
    axes: "Axes", name: str, rows: Rows, note: str, *, calibrated_lie_on_it: bool = False
) -> None:
    """Draw predicted against observed by bins of a map, above the band of its null; of Algorithm 1 with both.

    note: a line under the title. calibrated_lie_on_it: whether a calibrated map lies on the diagonal.
    """
    unit_square(axes, rows, "λmax served, mean of bin", "perfect" if calibrated_lie_on_it else "equal")
    for end in ("rescaled_low", "rescaled_high"):
        if any(row.get(end) is not None for row in rows):
            axes.plot(
                column(rows, "predicted"), column(rows, end), color=GREY, linewidth=1.1, linestyle=(0, (4, 2))
            )
    _look_line(axes, LOOKS[name], column(rows, "predicted"), column(rows, "observed"))
    axes.set_title(f"{MAPS[name]}\n", loc="left")
    axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9.5)


def unit_square(axes: "Axes", rows: Rows, xlabel: str, word: str) -> None:
    """Draw what is below every reliability diagram: the band of its bins where known, and the diagonal.

    word: what lies on the diagonal.
    """
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=xlabel)
    axes.set_xticks(*TICKS)
    axes.set_yticks(*TICKS)
    if known := known_band(rows):
        _band(axes, known)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9)
    axes.text(1.0, 0.985, word, color=GREY, fontsize=8.5, ha="right", va="top", **ALONG)


def _band(axes: "Axes", rows: Rows) -> None:
    """Draw where bins lie under calibration: the ends of the null, cut to the unit square."""
    x = column(rows, "predicted")
    low = [max(value, 0.0) for value in column(rows, "band_low")]
    high = [min(value, 1.0) for value in column(rows, "band_high")]
    axes.fill_between(x, low, high, color=LIGHT, linewidth=0)
    axes.vlines(x, low, high, color="#bdbdbd", linewidth=1)


def _look_line(axes: "Axes", look: Look, x: Sequence[float], y: Sequence[float], **more: Any) -> None:
    """Draw a line in the look of its map; not clipped, so that markers on the frame are whole."""
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False, **more)


def null_bar(
    axes: "Axes", place: float, low: float | None, high: float | None, colour: str, height: float = 0.2
) -> None:
    """Draw where a figure lies under calibration as a horizontal bar; nothing where that is not known."""
    if low is not None and high is not None and not math.isnan(high - low):
        axes.barh(place, high - low, left=low, height=height, color=colour)


def rejection(axes: "Axes", curves: Sequence[RejectionCurve]) -> None:
    """Draw the accuracy of what is kept against the share rejected, and that of all as a grey line."""
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


def samples(axes: "Axes", rows: Rows) -> None:
    """Draw the raw lambda_max by number of answers, with its deviation between subsets of one prompt."""
    x, y, spread = (column(rows, name) for name in ("num_samples", "mean", "deviation"))
    axes.errorbar(x, y, spread, color="black", marker="s", capsize=4, elinewidth=1.2)
    pairs = list(zip(x, y, strict=True))
    for place, mean in pairs if len(pairs) <= 6 else (pairs[0], pairs[-1]):  # more would lie on the bars
        beside(axes, place, mean, number(mean, 2))
    axes.set(ylim=(0, 1.02), xlim=(min(x) - 1, max(x) * 1.12 + 0.5), xlabel="answers per prompt")
    axes.set_ylabel("raw λmax")
    axes.set_xticks(x if len(x) <= 8 else x[:: len(x) // 8 + 1])


def samples_words(rows: Rows) -> str:
    """Return the same as a sentence, to be read aloud."""
    columns = (column(rows, name) for name in ("num_samples", "mean", "deviation"))
    told = (
        f"{m:.0f} answers: {number(mean)} ± {number(spread)}"
        for m, mean, spread in zip(*columns, strict=True)
    )
    return f"{'; '.join(told)}."


def beside(axes: "Axes", x: float, y: float, text: str) -> None:
    """Write a text beside a point."""
    axes.annotate(text, (x, y), (5, 5), textcoords="offset points", fontsize=9)


Line = tuple[str, Sequence[float], Look]  # name, values, look


def risk_and_entropy(
    axes: "Axes", temperatures: Sequence[float], risks: Sequence[Line], entropy: Line, best: float | None
) -> None:
    """Draw risks and the entropy of the paper's map against temperature; they meet at the best one."""
    lines(axes, temperatures, [risks[0], entropy, *risks[1:]])
    least = max(min(values) for _, values, _ in risks)
    axes.set(ylabel="nats", ylim=(0, HEAD_ROOM * max(least, 0.1)))
    log_temperature(axes, temperatures[0], temperatures[-1])
    axes.legend(frameon=False, loc="best")  # the wall of the risk is anywhere, as the fit is
    mark(axes, best, f"fit: T = {number(best, 2)}", below=True)
    if best is not None:
        circle: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black"}
        axes.plot(best, min(risks[0][1]), marker="o", markersize=9, **circle)


def lines(axes: "Axes", x: Sequence[float], drawn: Sequence[Line]) -> None:
    """Draw the lines so that those which lie on one another all show: dotted ones wide, and below."""
    for name, y, look in drawn:
        wide: dict[str, Any] = {"linewidth": 4.5, "zorder": 1.5} if look is THIRD else {}
        axes.plot(x, y, color=look.colour, linestyle=look.dashes, label=name, **wide)


def log_temperature(axes: "Axes", low: float, high: float) -> None:
    """Make the x axis one of temperatures, on a log scale."""
    places = [t for t in (0.1, 0.25, 0.5, 1, 2, 4, 10, 30) if low <= t <= high]
    axes.set(xscale="log", xlim=(low, high), xlabel="temperature T (log scale)")
    axes.set_xticks(places, [f"{t:g}" for t in places])
    axes.set_xticks([], minor=True)


def mark(axes: "Axes", place: float | None, text: str, *, below: bool = False) -> None:
    """Mark a place of the x axis by a dotted line with a text at its top, or bottom, where there is room."""
    if place is None:
        return
    axes.axvline(place, color=GREY, linewidth=0.9, linestyle=":")
    low, high = axes.get_xlim()
    along = math.log(place / low) / math.log(high / low) if axes.get_xscale() == "log" else place / high
    side, gap = ("right", -5) if along > 0.75 else ("left", 5)
    end, away, va = (axes.get_ylim()[0], 4, "bottom") if below else (axes.get_ylim()[1], -2, "top")
    style: dict[str, Any] = {"ha": side, "va": va, "weight": "bold", "fontsize": 9.5}
    axes.annotate(text, (place, end), (gap, away), textcoords="offset points", **style)
