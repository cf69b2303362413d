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
