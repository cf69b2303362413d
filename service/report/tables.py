"""The tables of the pages, as texts: maps side by side, and figures by number of answers (on both pages)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.report.model import Estimate, ServedRow
from service.report.words import MISSING, between, number, p_words, typeset

NO_CLASSES = "all answers right, or all wrong"
NO_CLUSTERS = "too few prompts that are alike"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column: its name, small words below it, and a tag beside it."""

    name: str
    small: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure; `small`: its interval, its band, or why it is missing."""

    text: str
    small: str
    best: bool


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of every map, in the order of the rows; `better`: "lower", "higher", or "" for neither."""

    name: str
    better: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    better: str
    value: Callable[[ServedRow], float | None]
    small: Callable[[ServedRow], str] = lambda _: ""
    why_missing: str = ""


def _projection_null(row: ServedRow) -> str:
    null = row["projection_null"]
    return f"if calibrated: {between(null) or 'unknown'}; {p_words(null['p_value'])}"


def _both_nulls(row: ServedRow) -> str:
    drawn, rescaled = between(row["algorithm1_band"]), between(row["algorithm1_rescaled"])
    return f"a: {drawn or 'unknown'}; b: {rescaled or 'unknown'}"


def _auroc(name: str, estimate: Callable[[ServedRow], Estimate]) -> _Figure:
    def interval(row: ServedRow) -> str:
        bounds = between(estimate(row))
        return bounds and f"({bounds})"

    return _Figure(name, "higher", lambda row: estimate(row)["value"], interval, NO_CLASSES)


FIGURES = (
    _Figure("Risk, in nats", "lower", lambda r: r["risk"]),
    _Figure("Projection ECE", "lower", lambda r: r["projection_ece"], _projection_null),
    _Figure("Projection Brier", "lower", lambda r: r["projection_brier"]),
    _Figure("Algorithm 1 ECE", "", lambda r: r["algorithm1_ece"], _both_nulls, NO_CLUSTERS),
    _auroc("AUROC of λmax", lambda r: r["auroc_lambda_max"]),
    _auroc("AUROC of −entropy", lambda r: r["auroc_entropy"]),
    _Figure("Accuracy-rejection area", "higher", lambda r: r["rejection_area"], why_missing=NO_CLASSES),
    _Figure("Mean λmax", "", lambda r: r["mean_lambda_max"]),
    _Figure("Mean entropy, in nats", "", lambda r: r["mean_entropy"]),
)


def compare(rows: Sequence[ServedRow]) -> list[ComparedFigure]:
    """Return the lines of the table. Figures equal as written are all marked best, unless all are equal."""
    return [_line(figure, rows) for figure in FIGURES]


def _line(figure: _Figure, rows: Sequence[ServedRow]) -> ComparedFigure:
    written = [number(figure.value(row)) for row in rows]
    known = [value for row in rows if (value := figure.value(row)) is not None]
    best = None
    if known and figure.better and len(set(written)) > 1:
        # As written: digits that are not there mark nobody as best.
        best = number(min(known) if figure.better == "lower" else max(known))
    pairs = zip(written, rows, strict=True)
    cells = [
        Cell(text, figure.why_missing if text == MISSING else figure.small(row), text == best)
        for text, row in pairs
    ]
    return ComparedFigure(figure.name, figure.better, cells)


Row = Mapping[str, object]  # of an experiment, or of a report
CORRECT, SERVED = "probability_correct", "lambda_max"
# Columns: score and map, heading.
SCORES = {
    (CORRECT, "evidence"): "P(correct), with log-probabilities",
    (CORRECT, "depolarized"): "P(correct), without",
    (SERVED, "evidence"): "λmax, Evidence",
    (SERVED, "depolarized"): "λmax, Depolarized",
    (SERVED, "temperature"): "λmax, Temperature",
    (SERVED, "raw"): "λmax, Raw",
}
SAYS = (
    "The first answers of each prompt instead of all: every map, and P(correct) with log-probabilities and "
    "without, fitted for that number and judged on prompts that the fits have not seen. Recommended (dotted) "
    "are the fewest answers whose log loss of P(correct) is within one standard error, paired by prompt, of "
    "the lowest."
)
SAYS_NOT = (
    "That more answers are useless: so many prompts do not tell them apart by this loss. Nor whether more "
    "draws pick a right answer more often: every row judges the same text."
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
    """heads: of columns; lines: by number of answers; advice: what is recommended; caption: on which rows."""

    heads: Sequence[Head]
    lines: Sequence[AnswersLine]
    advice: str
    caption: str
    says: str = SAYS
    says_not: str = SAYS_NOT


def answers_table(rows: Sequence[Row], advice: str, recommended: int | None, judged_on: str) -> AnswersTable:
    """Return the table of figures by number of answers.

    judged_on: which rows the figures are of, in words: another table of P(correct) may be of others.
    """
    scores = [key for key in SCORES if any((row["score"], row["map"]) == key for row in rows)]
    by_number: dict[int, list[Row]] = {}
    for row in rows:
        by_number.setdefault(int(str(row["num_samples"])), []).append(row)
    lines = [_answers_line(m, mine, scores, m == recommended) for m, mine in by_number.items()]
    heads = [Head("Answers"), Head("Tokens", "per question"), *(Head(SCORES[key]) for key in scores)]
    caption = (
        f"By number of answers, on {judged_on}: to choose a number of answers by. 95 % intervals below the "
        "figures; − all: loss minus that of the last line, paired by prompt."
    )
    return AnswersTable(heads, lines, typeset(advice), caption)


def _answers_line(
    m: int, rows: Sequence[Row], scores: Sequence[tuple[str, str]], recommended: bool
) -> AnswersLine:
    by_score = {(row["score"], row["map"]): row for row in rows}
    cells = [_answers_cell(by_score[key]) if key in by_score else [] for key in scores]
    return AnswersLine(m, _number(rows[0], "tokens", 0), recommended, cells)


def _answers_cell(row: Row) -> list[tuple[str, str, Sequence[str]]]:
    loss = "log loss" if row["score"] == CORRECT else "risk"
    # Of the loss, which decides, the gap to all answers, too.
    gap = _interval(row, "loss_gap")
    to_all = [f"− all: {_number(row, 'loss_gap')}", gap] if gap else []
    return [
        (loss, _number(row, "loss"), [*filter(None, [_interval(row, "loss")]), *to_all]),
        ("Brier", _number(row, "brier"), [*filter(None, [_interval(row, "brier")])]),
        ("AUROC", _number(row, "auroc"), [*filter(None, [_interval(row, "auroc")])]),
    ]


def _number(row: Row, key: str, digits: int = 3) -> str:
    value = row[key]
    return number(value if isinstance(value, float | int) else None, digits)


def _interval(row: Row, key: str) -> str:
    low, high = _number(row, f"{key}_low"), _number(row, f"{key}_high")
    return "" if MISSING in (low, high) else f"{low} to {high}"
