"""The maps side by side: one line per figure, the best one marked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.report.drawing import LOOKS, Plot, column, draw
from service.report.model import Estimate, ServedRow
from service.report.words import MAPS, MISSING, between, number, p_words, typeset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from collections.abc import Iterable
from typing import Any, Literal

from service.calibration.calibration import NEEDED_OF_A_KIND, PROMISE_MEANING
from service.report import plots, words
from service.report.bench import sizes
from service.report.drawing import known_band
from service.report.model import (
    CalibrationPart,
    CorrectnessAt,
    CorrectnessPart,
    FitPart,
    NullPart,
    PromiseAt,
    Report,
)
from service.report.pages import page
from service.report.plots import curve, diagram
from service.report.words import share
from service.scoring.judging import percent
from service.spectral.correctness_model import LEAST_OF_A_KIND

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


# What an answer more is worth, on both pages: the table by number of answers, and its small figure.

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
        _answers_line(
            m, [row for row in rows if row["num_samples"] == m], scores, m == headline["recommended"]
        )
        for m in numbers
        if isinstance(m, int)
    ]
    heads = [Head("Answers"), Head("Tokens", "per question"), *(Head(SCORES[key]) for key in scores)]
    caption = (
        f"By number of answers, on {judged_on}: to choose a number of answers by. 95 % intervals below the "
        "figures; − all: loss minus that of the last line, paired by prompt."
    )
    return AnswersTable(heads, lines, typeset(str(headline["recommendation"])), caption)


def _answers_line(
    m: int, rows: Sequence[Row], scores: Sequence[tuple[str, str]], recommended: bool
) -> AnswersLine:
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


# Whether an answer is right, on the page of a report: P(correct), and what thresholds on it promise.

FEATURES = {
    "logit_probability": "probability of the answer",
    "logit_missing_mass": "missing mass",
    "entropy": "entropy",
    "mean_log_probability": "mean log-probability",
}

HEADS = [
    Head("Answers"),
    Head("Log loss", "of the base rate; lower is better"),
    Head("Brier", "of the base rate; lower is better"),
    Head("AUROC", "95 % interval; 0.5 is chance"),
    Head("The model takes"),
    Head("Right / wrong", "fitted; counted"),
]
TARGET_HEADS = [
    Head("Wrong, at most"),
    Head("Answer from P(correct)"),
    Head("Let through"),
    Head("Wrong of these"),
]
LOWEST_HEAD = Head("At the lowest error", "that can be promised")


def decided(report: Report) -> Mapping[str, Any] | None:
    """Return what the section shows; None for reports of earlier releases, which have no such part."""
    from markupsafe import Markup

    if (part := report.get("correctness")) is None:
        return None
    whole = next(row for row in part["by_num_samples"] if row["num_samples"] == part["num_samples"])
    recommended = report["opening"]["num_samples"]
    shown = _shown(part, recommended)
    found: dict[str, Any] = {
        "heads": HEADS,
        "target_heads": TARGET_HEADS,
        "num_samples": part["num_samples"],
        "confidence": share(part["confidence"]),
        "fitted": whole["fitted_right"] + whole["fitted_wrong"],
        "counted": whole["counted_right"] + whole["counted_wrong"],
        "why_none": why_none(whole),
        # Where nothing was tried for any number, one sentence says it all.
        "table": [_row(row) for row in shown] if _tried(part) else [],
        "promises": bool(part["promises"]),
        "meaning": PROMISE_MEANING,
        "reached": _reached(part["promises"], whole.get("lowest")),
        "unreached": _unreached(part, whole.get("lowest")),
        **_by_number(shown, recommended),
    }
    if not part["promises"]:
        return found
    # Ours from end to end: no text of a caller is drawn.
    drawn = {"diagram": diagram(part, report["calibration"]["method"]), "curve": curve(part)}
    return found | {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704


def _shown(part: CorrectnessPart, recommended: int | None) -> list[CorrectnessAt]:
    """Return the numbers of answers that the page compares; the JSON has every one."""
    wanted = {*sizes(part["num_samples"]), recommended}
    return [row for row in part["by_num_samples"] if row["num_samples"] in wanted]


def _tried(part: CorrectnessPart) -> bool:
    return any(row["log_loss"] is not None for row in part["by_num_samples"])


def why_none(row: CorrectnessAt) -> str:
    """Return why there is no model, as a sentence; "" where there is one."""
    right, wrong = row["fitted_right"], row["fitted_wrong"]
    if row["why_none"] == "one_kind":
        return f"all answers of the rows that would fit it are {'right' if right else 'wrong'}."
    if row["why_none"] == "too_few_verdicts":
        counted = f"{right} right answers and {wrong} wrong ones"
        return (
            f"the half of the rows that would fit it has {counted}; it takes {LEAST_OF_A_KIND} of each, so "
            f"at least {NEEDED_OF_A_KIND} of each in the file."
        )
    if row["why_none"] == "no_better_than_base_rate":
        return (
            "on held-out rows nothing tells right from wrong better than their share of right answers does."
        )
    return ""


def _row(row: CorrectnessAt) -> dict[str, Any]:
    """Return a line of the table by number of answers, as texts."""
    low, high = row["auroc"]["low"], row["auroc"]["high"]
    takes = ", ".join(FEATURES.get(name, name) for name in row["features"])
    return {
        "num_samples": row["num_samples"],
        "log_loss": number(row["log_loss"]),
        "base_log_loss": number(row["base_log_loss"]),
        "brier": number(row["brier"]),
        "base_brier": number(row["base_brier"]),
        "auroc": number(row["auroc"]["value"]),
        "interval": "" if low is None or high is None else f"{number(low)} to {number(high)}",
        "takes": takes or f"no model: {why_none(row)}",
        "fitted": f"{row['fitted_right']} / {row['fitted_wrong']}",
        "counted": f"{row['counted_right']} / {row['counted_wrong']}",
    }


def _reached(promises: Sequence[PromiseAt], lowest: PromiseAt | None) -> list[dict[str, Any]]:
    """Return the lines of the table of targets that can be promised, the lowest that can among them."""
    kept = [one for one in promises if one["threshold"] is not None]
    if lowest is not None and lowest["target_error"] not in [one["target_error"] for one in kept]:
        kept = sorted([*kept, lowest], key=lambda one: one["target_error"])
    return [_promise(one, one is lowest) for one in kept]


def _promise(one: PromiseAt, lowest: bool) -> dict[str, Any]:
    """Return a line of the table of targets, as texts."""
    return {
        "target": percent(one["target_error"]),
        "lowest": lowest,
        "threshold": number(one["threshold"]),
        "answered": f"{one['answered']:,}",
        "coverage": share(one["coverage"]),
        "wrong": f"{one['wrong']:,}",
        "share_wrong": share(one["wrong"] / one["answered"]),
    }


def _unreached(part: CorrectnessPart, lowest: PromiseAt | None) -> str:
    """Return which targets cannot be promised, in one sentence; "" where all can."""
    missed = [percent(one["target_error"]) for one in part["promises"] if one["threshold"] is None]
    if not missed:
        return ""
    targets = " or ".join([", ".join(missed[:-1]), missed[-1]] if missed[1:] else missed)
    least = lowest["target_error"] if lowest else _least(part["promises"])
    instead = f"the lowest that can is {percent(least)}" if least else "these rows are too few for any"
    with_ = f"With {part['num_samples']} answers and {share(part['confidence'])} confidence"
    return f"{with_}, an error of at most {targets} cannot be promised: {instead}."


def _least(promises: Sequence[PromiseAt]) -> float | None:
    """Return the lowest error named by reports that have no promise for it."""
    named = [one["lowest_error"] for one in promises if one["lowest_error"] is not None]
    return min(named, default=None)


def _by_number(rows: Sequence[CorrectnessAt], recommended: int | None) -> dict[str, Any]:
    """Return the table of promises by number of answers; empty in reports of earlier releases."""
    known = [row for row in rows if row.get("promises")]
    targets = [one["target_error"] for one in known[0]["promises"]] if known else []
    # A target that no number of answers reaches would be a column of dashes.
    reached = [
        i for i in range(len(targets)) if any(row["promises"][i]["threshold"] is not None for row in known)
    ]
    lines = [
        {
            "num_samples": row["num_samples"],
            "recommended": row["num_samples"] == recommended,
            "cells": [*(_answered(row["promises"][i]) for i in reached), _lowest(row.get("lowest"))],
        }
        for row in known
    ]
    heads = [Head("Answers"), *(Head(f"At most {percent(targets[i])} wrong") for i in reached), LOWEST_HEAD]
    return {"by_number": lines, "number_heads": heads}


def _answered(one: PromiseAt) -> str:
    return MISSING if one["threshold"] is None else share(one["coverage"])


def _lowest(one: PromiseAt | None) -> str:
    return MISSING if one is None else f"{share(one['coverage'])} at {percent(one['target_error'])}"


# The page of a report: words, tables and plots in one file that needs nothing from outside.

ROWS_ADVISED = 300  # docs/calibrating.md: the worst of many fits on so many is as good as the mean
_ByMap = Literal["projection", "algorithm1", "correctness"]


def render(report: Report) -> str:
    """Return a report as one self-contained HTML page: no script, no resource from outside, inline SVG.

    Equal reports give equal pages. Takes about a second. Every text of the report is escaped.
    """
    return page("report.html", _context(report))


def _context(report: Report) -> dict[str, Any]:
    calibration = report["calibration"]
    return {
        **report,
        "job_id": report.get("job_id"),
        "unfitted": report.get("unfitted", {}),
        "title": calibration["name"].strip() or calibration["id"],
        "maps": words.MAPS,
        "origins": words.ORIGINS,
        "labelled": words.LABELLED[report["data"]["correct_from"]],
        "fingerprint": words.fingerprint_rows(calibration["fingerprint"]),
        "lines": compare(report["served"]),
        "map_heads": [
            Head("Figure"),
            *(_map_head(row["map"], calibration["method"]) for row in report["served"]),
        ],
        "summary": list(_summary(report)),
        "state": _state(report),
        "brier": report["decision"].get("brier_difference"),
        "loss": report["decision"].get("loss_difference"),
        "fitted": [_fitted(calibration, name, fit) for name, fit in report["fits"].items()],
        "fewest": plots.FEWEST,
        "by_answers": _by_answers(report),
        "plots": _plots(report),
        "projection_nulls": [words.projection_words(row) for row in report["served"]],
        "algorithm1_nulls": [words.algorithm1_words(row) for row in report["served"]],
        "has_bands": _has_bands(report),
        "decided": decided(report),
        "data": {"refused": None, **report["data"]},
        "verdicts": report.get("verdicts"),
        "whys": words.WHY_RIGHT,
    }


def _map_head(name: str, method: str) -> Head:
    return Head(words.MAPS[name], words.ORIGINS[name], "this one" if name == method else "")


def _by_answers(report: Report) -> AnswersTable | None:
    """Return the table by number of answers; None for reports of earlier releases."""
    told, rows = report.get("answers"), words.count(report["data"]["rows_full"], "row")
    if told is None:
        return None
    headline = {**told, "recommended": report["opening"]["num_samples"]}
    return answers_table(told["rows"], headline, f"all {rows}, each judged by fits without its fold")


def _has_bands(report: Report) -> dict[str, bool]:
    """Return whether the bands of a diagram are known: reports of earlier releases kept none."""
    curves = report["curves"]
    return {
        "projection": any(known_band(bins) for bins in curves["projection"].values()),
        "algorithm1": any(known_band(bins) for bins in curves["algorithm1"].values()),
        "correctness": any(known_band(bins) for bins in curves["correctness"].values()),
    }


def _state(report: Report) -> str:
    """Return whether it is active: now where that is known, else when it was made."""
    now = report.get("now")
    if now is None:
        return "Activated" if report["decision"]["activated"] else "Not activated"
    since = f" since {words.when(now['activated_at'])}" if now["activated_at"] else ""
    return f"Active now{since}" if now["active"] else "Not active now"


def _summary(report: Report) -> Iterable[str]:
    """Yield what changed from raw to the map of the calibration, on held-out prompts."""
    rows = {row["map"]: row for row in report["served"]}
    raw, ours = rows["raw"], rows[report["calibration"]["method"]]
    yield _change(
        "Against raw scores, the gap between what λmax says and what is found (projection ECE)", raw, ours
    )
    if null := ours.get("projection_null"):
        yield from _found(report, ours, null)
    before, after = raw["auroc_lambda_max"]["value"], ours["auroc_lambda_max"]["value"]
    if before is None or after is None:
        yield "How well λmax tells right from wrong answers cannot be computed: there is one kind only."
    else:
        yield (
            "How well λmax tells right from wrong answers (AUROC; 0.5 is chance) goes from "
            f"{words.number(before)} to {words.number(after)}. Calibration is about what the numbers mean; "
            "it is not meant to improve this."
        )


def _found(report: Report, ours: ServedRow, null: NullPart) -> Iterable[str]:
    """Yield what the projection diagnostic found of this calibration, and what to do about a gap."""
    read = f"Calibrated scores would read {words.between(null) or words.MISSING} on these prompts"
    p_value = words.p_words(null["p_value"])
    if not words.off(null["p_value"]):
        yield f"{read} ({p_value}): this calibration {words.judged(null['p_value'])}."
        return
    yield f"{read} ({p_value}), so a gap is left that chance does not explain. {_still_useful(report, ours)}"
    yield f"To close it: {_to_do(report)}"


def _still_useful(report: Report, ours: ServedRow) -> str:
    """Return whether a calibration with a gap may be used."""
    raw = next(row for row in report["served"] if row["map"] == "raw")
    if ours["projection_ece"] < raw["projection_ece"]:
        return (
            "It may still be used, being nearer than raw scores: take λmax as off by about "
            f"{words.number(ours['projection_ece'], 2)}."
        )
    return "Raw scores are no further off: better serve those than this calibration."


def _to_do(report: Report) -> str:
    """Return what may bring a calibration nearer: another map where one shows no gap, else other rows."""
    others = [
        row["map"]
        for row in report["served"]
        if row["map"] in report["fits"]
        and row["map"] != report["calibration"]["method"]
        and (null := row.get("projection_null"))
        and not words.off(null["p_value"])
    ]
    told = ", ".join(f"{words.MAPS[name]} (method={name})" for name in others)
    instead = f"calibrate with a map that shows no gap here: {told}; or " if others else ""
    few = report["data"]["rows_full"] < ROWS_ADVISED
    more = f"{ROWS_ADVISED} rows or more, " if few else "rows "
    return (
        f"{instead}calibrate on {more}drawn at random from what callers ask, with references in the words of "
        "the model."
    )


def _change(what: str, raw: ServedRow, ours: ServedRow) -> str:
    before, after = words.number(raw["projection_ece"]), words.number(ours["projection_ece"])
    verb = (
        "stays" if before == after else "falls" if ours["projection_ece"] < raw["projection_ece"] else "rises"
    )
    return f"{what} {verb} {'at ' + after if before == after else f'from {before} to {after}'}."


def _fitted(calibration: CalibrationPart, name: str, fit: FitPart) -> dict[str, Any]:
    return {
        "name": words.MAPS[name],
        "origin": words.ORIGINS[name],
        "chosen": name == calibration["method"],
        "bound": ", ".join(fit["at_bound"]),
        **fit,
    }


def _plots(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    curves = report["curves"]
    one = {
        "bands": plots.algorithm1_bands(report["served"]),
        "rejection": plots.rejection(curves["rejection"], report["data"]["rows_full"]),
        "temperature": plots.temperature(curves["temperature"]),
        "samples": plots.samples(curves["samples"]),
        "parameters": plots.parameters(plots.parameter_columns(report)),
    }
    many: dict[_ByMap, Callable[[Report, ServedRow], str]] = {
        "projection": _projection,
        "algorithm1": _algorithm1,
        "correctness": _correctness,
    }
    if told := report.get("answers"):
        one["answers"] = answers_plot("answers", told["rows"], told)
    # Ours from end to end: no text of a caller is drawn.
    found: dict[str, Any] = {name: Markup(svg) for name, svg in one.items()}  # noqa: S704
    for name, make in many.items():
        drawn = any(curves[name].values())
        found[name] = [Markup(make(report, row)) for row in report["served"]] if drawn else []  # noqa: S704
    return found


def _projection(report: Report, row: ServedRow) -> str:
    name, note = row["map"], f"projection ECE {words.number(row['projection_ece'])}"
    bins = report["curves"]["projection"][name]
    return plots.reliability("projection", name, bins, "share of the reference", note)


def _algorithm1(report: Report, row: ServedRow) -> str:
    name, note = row["map"], f"ECE {words.number(row['algorithm1_ece'])}"
    bins = report["curves"]["algorithm1"][name]
    return plots.reliability("algorithm1", name, bins, "target of the clusters", note)


def _correctness(report: Report, row: ServedRow) -> str:
    name, note = row["map"], f"AUROC {words.number(row['auroc_lambda_max']['value'])}"
    bins = report["curves"]["correctness"][name]
    return plots.reliability("correctness", name, bins, "share of right answers", note)
