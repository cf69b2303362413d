"""The page of a report: words, tables and plots in one file that needs nothing from outside."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from service.domain.study.report_model import CalibrationPart, FitPart, NullPart, Report, ServedRow
from service.report import plots, words
from service.report.answers import AnswersTable, answers_plot, answers_table
from service.report.comparison import Head, compare
from service.report.deciding import decided
from service.report.diagrams import known_band
from service.report.pages import page

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
