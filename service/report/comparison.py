"""The maps side by side: one line per figure, the best one marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.study.report_model import Estimate, ServedRow
from service.report.words import MISSING, between, number, p_words

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


def _interval(found: Estimate) -> str:
    return f"({between(found)})" if between(found) else ""


def _projection_null(row: ServedRow) -> str:
    null = row.get("projection_null")
    return f"if calibrated: {between(null) or 'unknown'}; {p_words(null['p_value'])}" if null else ""


def _both_nulls(row: ServedRow) -> str:
    drawn, rescaled = between(row["algorithm1_band"]), row.get("algorithm1_rescaled")
    told = f"a: {drawn or 'unknown'}"
    return f"{told}; b: {between(rescaled) or 'unknown'}" if rescaled else told


def _auroc(name: str, found: Callable[[ServedRow], Estimate]) -> _Figure:
    return _Figure(name, "higher", lambda r: found(r)["value"], lambda r: _interval(found(r)), NO_CLASSES)


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
    best = _best(figure, rows)
    cells = [
        Cell(
            text,
            figure.why_missing if text == MISSING else figure.small(row),
            text == best and len(set(written)) > 1,
        )
        for text, row in zip(written, rows, strict=True)
    ]
    return ComparedFigure(figure.name, figure.better, cells)


def _best(figure: _Figure, rows: Sequence[ServedRow]) -> str | None:
    known = [value for row in rows if (value := figure.value(row)) is not None]
    if not known or not figure.better:
        return None
    # As written: what is not shown marks nobody as best.
    return number(min(known) if figure.better == "lower" else max(known))
