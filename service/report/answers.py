"""What an answer more is worth, on both pages: the table by number of answers, and its small figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.report.comparison import Head
from service.report.diagrams import column
from service.report.drawing import LOOKS, Plot, draw
from service.report.words import MAPS, MISSING, number, typeset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, object]  # of an experiment, or of a report
CORRECT, SERVED = "probability_correct", "lambda_max"
LOSSES = {CORRECT: "log loss", SERVED: "risk"}
# Columns: score and map, heading.
SCORES = {
    (CORRECT, "evidence"): "P(correct), with evidence",
    (CORRECT, "depolarized"): "P(correct), without",
    (SERVED, "evidence"): "λmax, Evidence",
    (SERVED, "depolarized"): "λmax, Depolarized",
    (SERVED, "temperature"): "λmax, Temperature",
    (SERVED, "raw"): "λmax, Raw",
}
SIZE = (4.4, 3.0)  # inches
SAYS = (
    "The first answers of each prompt instead of all: every map, and P(correct), the probability that the "
    "answer is right, with evidence (log-probabilities) and without, fitted for that number and judged on "
    "prompts that the fits have not seen. Recommended (dotted) are the fewest answers whose log loss of "
    "P(correct) is within one standard error, paired by prompt, of the lowest. Where there are too few "
    "verdicts for P(correct), none is recommended, and the figure shows the risk."
)
SAYS_NOT = (
    "That more answers are useless: so many prompts do not tell them apart by this loss. The risk of λmax "
    "falls on with more answers, which span more of what a reference may be. One answer has a spectrum of 1 "
    "whatever it is, so only evidence tells anything then. How much oftener answers of more draws are right: "
    "all judge the same text, the given answer or the dominant one of all draws. Fits stay as they are "
    "while prompts are resampled."
)


@dataclass(frozen=True, slots=True)
class AnswersLine:
    """A number of answers: tokens, and by score its figures; none: not applicable.

    A figure is its name, its value, and small lines: its interval, and its gap to all answers with its own.
    """

    num_samples: int
    tokens: str
    recommended: bool
    cells: Sequence[Sequence[tuple[str, str, Sequence[str]]]]


@dataclass(frozen=True, slots=True)
class AnswersTable:
    """heads: of columns; lines: by number of answers; told: what is recommended; caption: on which rows."""

    heads: Sequence[Head]
    lines: Sequence[AnswersLine]
    told: str
    caption: str
    says: str = SAYS
    says_not: str = SAYS_NOT


def answers_table(rows: Sequence[Row], headline: Row, judged_on: str) -> AnswersTable:
    """Return the table of an experiment's rows; the headline names what is recommended.

    judged_on: which rows the figures are of, in words: another table of P(correct) may be of others.
    """
    scores = [key for key in SCORES if any((row["score"], row["map"]) == key for row in rows)]
    numbers = list(dict.fromkeys(row["num_samples"] for row in rows))
    lines = [
        _line(m, [row for row in rows if row["num_samples"] == m], scores, m == headline["recommended"])
        for m in numbers
        if isinstance(m, int)
    ]
    heads = [Head("Answers"), Head("Tokens", "per question"), *(Head(SCORES[key]) for key in scores)]
    caption = (
        f"By number of answers, on {judged_on}: to choose a number of answers by. 95 % intervals below the "
        "figures; − all: loss minus that of the last line, paired by prompt."
    )
    return AnswersTable(heads, lines, typeset(str(headline["recommendation"])), caption)


def _line(m: int, rows: Sequence[Row], scores: Sequence[tuple[str, str]], recommended: bool) -> AnswersLine:
    by_score = {(row["score"], row["map"]): row for row in rows}
    [tokens] = column(rows[:1], "tokens")
    cells = [_cell(by_score[key]) if key in by_score else [] for key in scores]
    return AnswersLine(m, number(tokens, 0), recommended, cells)


def _cell(row: Row) -> list[tuple[str, str, Sequence[str]]]:
    names = {"loss": LOSSES[str(row["score"])], "brier": "Brier", "auroc": "AUROC"}
    return [(name, _number(row, key), _small(row, key)) for key, name in names.items()]


def _small(row: Row, key: str) -> list[str]:
    """Return the interval; of the loss, which decides, the gap to all answers, too."""
    gap = _between(row, f"{key}_gap") if key == "loss" else ""
    lines = [_between(row, key), f"− all: {_number(row, f'{key}_gap')}" if gap else "", gap]
    return [line for line in lines if line]


def _number(row: Row, key: str) -> str:
    [value] = column([row], key)
    return number(value)


def _between(row: Row, key: str) -> str:
    low, high = _number(row, f"{key}_low"), _number(row, f"{key}_high")
    return "" if MISSING in (low, high) else f"{low} to {high}"


def answers_plot(name: str, rows: Sequence[Row], headline: Row) -> str:
    """Return the loss by number of answers: of P(correct) where that decides, else the risk of the maps."""
    score = str(headline["recommended_by"])
    by_map = {
        map_: [row for row in rows if (row["score"], row["map"]) == (score, map_)]
        for kind, map_ in SCORES
        if kind == score and map_ != "raw"  # whose risk, charged with eps, would flatten the others
    }
    drawn = {map_: mine for map_, mine in by_map.items() if mine}
    plot = Plot(name, f"{_measure(score)} by number of answers", _told(drawn), SIZE)
    best = headline["recommended"]
    place = float(best) if isinstance(best, int) else None
    return draw(plot, lambda figure: _paint(figure, drawn, score, place))


def _measure(score: str) -> str:
    return "Log loss of the verdicts" if score == CORRECT else "Risk"


def _told(drawn: Mapping[str, Sequence[Row]]) -> str:
    lines = []
    for map_, rows in drawn.items():
        values = ", ".join(f"{row['num_samples']}: {_number(row, 'loss')}" for row in rows)
        lines.append(f"{MAPS[map_]}: {values}")
    return f"{'; '.join(lines)}."


def _paint(figure: "Figure", drawn: Mapping[str, Sequence[Row]], score: str, place: float | None) -> None:
    axes = figure.add_subplot(xlabel="answers per prompt (log scale)", ylabel="nats")
    for map_, rows in drawn.items():
        _one(axes, map_, rows, _label(score, map_))
    sizes = sorted({x for rows in drawn.values() for x in column(rows, "num_samples")})
    low, high = axes.get_ylim()
    axes.set(xscale="log", ylim=(low, high + 0.3 * (high - low)))  # room for the legend
    axes.set_xticks(sizes, [f"{x:.0f}" for x in sizes])
    axes.set_xticks([], minor=True)
    if place is not None:
        axes.axvline(place, color="black", linewidth=0.9, linestyle=":")
    axes.legend(frameon=False, loc="upper right", fontsize=9)


def _label(score: str, map_: str) -> str:
    if score != CORRECT:
        return MAPS[map_]
    return "with evidence" if map_ == "evidence" else "without"


def _one(axes: "Axes", map_: str, rows: Sequence[Row], label: str) -> None:
    x, y, low, high = (column(rows, name) for name in ("num_samples", "loss", "loss_low", "loss_high"))
    # Beside one another: intervals of two maps at one number of answers would hide each other.
    aside = {"evidence": 0.98, "depolarized": 1.0, "temperature": 1.02}[map_]
    x = [value * aside for value in x]
    look = LOOKS[map_]
    axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, label=label)
    axes.vlines(x, low, high, color=look.colour, linewidth=1.1)
