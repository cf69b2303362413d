"""The page of an evaluation: the verdict, and each experiment with its tables and perhaps a figure."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.evaluation.results import MAPS as MAP_NAMES
from service.evaluation.results import (
    DrawnAnswers,
    Experiment,
    FilePart,
    Provenance,
    Results,
    TableRow,
    Value,
)
from service.report import plots
from service.report.model import RejectionCurve, TemperatureCurve
from service.report.pages import page
from service.report.tables import SAYS, SAYS_NOT, answers_table
from service.report.words import LABELLED, MAPS, fingerprint_rows, number, typeset, when

SPLITS = {"dev": "Dev", "test": "Test"}
ANSWERS = {"file": "answers as the file has them", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}
UNKNOWN = "not known: the answers came with the files"

# Experiments whose rows are few enough to read; the others have them as CSV only.
ROWS_SHOWN = {
    "evidence_map",
    "sensitivity",
    "co_minimised",
    "auroc",
    "baselines",
    "comparison",
    "embedders",
    "sampling_temperature",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(experiment: Experiment) -> list[Table]:
    """Return the headline, with a row for each map and one for what is no map's, and rows worth reading."""
    headline = experiment["headline"]
    # "temperature_low" is the temperature's, unless there are figures of maps, raw first.
    names = MAP_NAMES if any(key.startswith("raw_") for key in headline) else ()
    of_maps = {name: _of_map(headline, name) for name in names}
    rest = {k: v for k, v in headline.items() if not k.startswith(tuple(f"{name}_" for name in names))}
    made = [
        _table([rest] if rest else []),
        _table([{"map": name, **row} for name, row in of_maps.items() if row]),
        _table(experiment["points"] if experiment["name"] in ROWS_SHOWN else []),
    ]
    # The rows of these are their headline, and more.
    skipped = 2 if experiment["name"] in ("auroc", "baselines", "comparison", "embedders") else 0
    return [one for one in made[skipped:] if one.rows]


def _of_map(headline: TableRow, name: str) -> TableRow:
    prefix = f"{name}_"
    return {key.removeprefix(prefix): value for key, value in headline.items() if key.startswith(prefix)}


def _table(rows: Sequence[TableRow]) -> Table:
    """Return rows of equal keys; x_low and x_high become an interval behind x, or behind x_mean."""
    columns: list[tuple[str, str | None, str | None]] = []  # heading, key of the figure, key of the interval
    for key in rows[0] if rows else ():
        base = key.removesuffix("low").removesuffix("_")
        if key.endswith("high"):
            continue
        if not key.endswith("low"):
            columns.append((key.removesuffix("_mean"), key, None))
        elif (columns and columns[-1][0] == base) or not base:
            columns[-1] = (*columns[-1][:2], key)
        else:
            columns.append((base, None, key))
    head = [_typed(heading) for heading, _, _ in columns]
    return Table(head, [[_cell(row, key, low) for _, key, low in columns] for row in rows])


def _cell(row: TableRow, key: str | None, low: str | None) -> str:
    figure = "" if key is None else format_value(row.get(key))
    if low is None:
        return figure
    ends = f"{format_value(row.get(low))} to {format_value(row.get(low.removesuffix('low') + 'high'))}"
    return f"{figure} ({ends})".strip()


def _typed(name: str) -> str:
    return name.replace("lambda_max", "λmax").replace("_", " ")


def format_value(value: Value) -> str:
    """Return a value as a cell of a table."""
    if isinstance(value, bool):  # before int, which a bool is
        return "yes" if value else "no"
    if isinstance(value, str):
        return typeset(MAPS.get(value, value.replace("_", " ")))
    if isinstance(value, float) and 0 < abs(value) < 5e-4:
        return f"{value:.2g}"  # eps, and p-values of many worlds
    return str(value) if isinstance(value, int) else number(value)


def csv_text(rows: Sequence[TableRow]) -> str:
    """Return rows as CSV, full precision, an empty cell for null; "" for no rows."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def origin_rows(provenance: Provenance) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of everything that is known."""
    for split, name in SPLITS.items():
        yield f"{name} file", _file(provenance["files"][split])
    yield from _answers(provenance["answers"])
    for one in provenance["embedders"]:
        how = f"revision {one['revision']}, d = {one['dimension']}, {one['precision']}"
        yield "Embedder", f"{one['name']} ({how})"
    yield "Null eigenvalue eps", f"{provenance['eps']:g}"
    yield "Made", f"{when(provenance['created_at'])} by Eigencal {provenance['version']}".rstrip()


def _file(file: FilePart) -> str:
    name = file["name"] or "an upload"
    known = [name, f"SHA-256 {file['sha256']}"] if file["sha256"] else [name]
    return ", ".join([*known, ANSWERS[file["answers_from"]]])


def _answers(answers: DrawnAnswers | None) -> Iterator[tuple[str, str]]:
    if answers is None:
        yield "Language model", UNKNOWN
        return
    answered_as = answers["answered_as"]
    model = answers["model"] or answered_as
    yield (
        "Language model",
        f"{model}, which answered as {answered_as}" if answered_as not in ("", model) else model,
    )
    for kind, setup in answers["setups"].items():
        for name, value in fingerprint_rows(setup):
            yield f"{name} ({KINDS[kind]})" if len(answers["setups"]) > 1 else name, value


def _reliability(ylabel: str, *, to_diagonal: bool = False) -> "Figures":
    def make(experiment: Experiment) -> dict[str, str]:
        name, rows = experiment["name"], experiment["points"]
        maps = dict.fromkeys(str(row["map"]) for row in rows)
        return {
            f"{name}-{one}": plots.reliability(
                name,
                one,
                [row for row in rows if row["map"] == one],
                ylabel,
                f"ECE {format_value(experiment['headline'][f'{one}_ece'])}",
                to_diagonal=to_diagonal,
            )
            for one in maps
        }

    return make


def _temperature(experiment: Experiment) -> dict[str, str]:
    rows = experiment["points"]
    curve: TemperatureCurve = {
        "temperatures": plots.column(rows, "temperature"),
        "risk": plots.column(rows, "dev_risk"),
        "entropy": plots.column(rows, "dev_entropy"),
        "optimum": float(str(experiment["headline"]["temperature"])),
    }
    return {experiment["name"]: plots.temperature(curve, plots.column(rows, "test_risk"))}


def _rejection(experiment: Experiment, size: int) -> dict[str, str]:
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    curves: list[RejectionCurve] = []
    for name in dict.fromkeys(str(row["map"]) for row in rows):
        mine = [row for row in rows if row["map"] == name]
        x, y = plots.column(mine, "rejected"), plots.column(mine, "accuracy")
        curves.append({"map": name, "rejected": x, "accuracy": y})
    return {experiment["name"]: plots.rejection(curves, size)}


def _answers_figure(experiment: Experiment) -> dict[str, str]:
    headline = experiment["headline"]
    best = headline["recommended"]
    score = str(headline["recommended_by"])
    svg = plots.answers(experiment["points"], score, best if isinstance(best, int) else None)
    return {experiment["name"]: svg}


Figures = Callable[[Experiment], dict[str, str]]
# Where a curve says more than a table.
FIGURES: dict[str, Figures] = {
    "estimator_convergence": lambda e: {e["name"]: plots.samples(e["points"])},
    "risk_and_entropy": _temperature,
    "projection_reliability": _reliability("share of the reference", to_diagonal=True),
    "naive_diagram": _reliability("target of the clusters"),
    "algorithm1_diagram": _reliability("target of the clusters"),
    "correctness_diagram": _reliability("share of right answers"),
    "answers": _answers_figure,
}


def evaluation_figures(results: Results) -> dict[str, dict[str, str]]:
    """Return the SVGs of every experiment that ran and is drawn, by experiment and by name."""
    size = results["test"]["used"]
    figures: dict[str, Figures] = {**FIGURES, "accuracy_rejection": lambda e: _rejection(e, size)}
    experiments = [one for one in results["experiments"] if one["ran"] and one["name"] in figures]
    return {one["name"]: figures[one["name"]](one) for one in experiments}


def evaluation_tables(results: Results) -> dict[str, str]:
    """Return the CSV of every experiment that ran, by name."""
    return {one["name"]: csv_text(one["points"]) for one in results["experiments"] if one["ran"]}


def render_evaluation(results: Results, figures: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return the evaluation as one self-contained HTML page. Equal results give equal pages.

    figures: of `evaluation_figures`, where they are drawn already. Every text of the results is escaped.
    """
    from markupsafe import Markup

    drawn = evaluation_figures(results) if figures is None else figures
    # Ours from end to end: no text of a caller is drawn.
    svgs = {name: [Markup(svg) for svg in made.values()] for name, made in drawn.items()}  # noqa: S704
    cautions = [one["text"] for one in results["cautions"]]
    context = {
        **results,
        "verdict": [typeset(one) for one in results["verdict"]],
        "to_know": [typeset(one) for one in dict.fromkeys([*cautions, *results["warnings"]])],
        "origin": list(origin_rows(results["provenance"])),
        "experiments": [
            {
                **one,
                "caption": CAPTIONS[one["name"]],
                "tables": tables(one),
                "by_answers": _by_answers(one),
                "figures": svgs.get(one["name"], []),
            }
            for one in results["experiments"]
        ],
        "labelled": {name: LABELLED[results[name]["correct_from"]] for name in ("dev", "test")},
    }
    return page("evaluation.html", context)


def _by_answers(experiment: Experiment) -> Any:
    if experiment["name"] != "answers" or not experiment["ran"]:
        return None
    headline = experiment["headline"]
    best, advice = headline["recommended"], str(headline["recommendation"])
    judged_on = "the test file, by fits on the dev file"
    return answers_table(experiment["points"], advice, best if isinstance(best, int) else None, judged_on)


# What each experiment says, and what it does not.
CAPTIONS = {
    "estimator_convergence": (
        "The mean raw λmax of random subsets of the answers, and by how much it differs between subsets "
        "of one prompt (bars: one standard deviation). Few answers read too high. The last bar is 0 by "
        "construction."
    ),
    "constant_predictor": (
        "A check of the machinery: one matrix, the mean of all references, is served for every prompt. No "
        "other constant is better on these references, so its risk must be lowest at T = 1."
    ),
    "risk_and_entropy": (
        "Risk of the paper's map for every T, on both files. That risk and entropy meet at the fit is "
        "algebra: it shows that the search has converged, not calibration. T depends on the null "
        "eigenvalue eps."
    ),
    "depolarized_map": (
        "Our map: T, and the mass g outside the span, with their intervals. The two trade off: the data pin "
        "both down less sharply than each alone. The CSV has the risk over g at the fitted T."
    ),
    "evidence_map": (
        "The mean test risk in groups of equal size by missing mass u: the evidence map, whose "
        "depolarization is each prompt's own, sigmoid(a + b logit u), beside the depolarized map, which "
        "has one for all. Where b is 0, the log-probabilities gave the fit nothing."
    ),
    "projection_reliability": (
        "The mean share of the reference along the dominant direction, against λmax. A calibrated map "
        "lies on the diagonal, within the grey band but for chance. An ECE inside its band is no proof of "
        "calibration."
    ),
    "naive_diagram": (
        "Algorithm 1 with one cluster per bin. A bin mixes subjects, so its mean matrix has a small "
        "largest eigenvalue whatever the calibration: compare with both bands, not with the diagonal."
    ),
    "algorithm1_diagram": (
        "The paper's diagram, within clusters of like density matrices. Grey: where points lie if "
        "references are drawn from what is served (a). Dashed: if real references keep their directions "
        "and only how much of them lies where is as served (b). Distance from a is mostly the narrow cone "
        "of the embedder, which no map of eigenvalues can mend; distance from b is what a map can be "
        "blamed for."
    ),
    "sensitivity": (
        "Algorithm 1 in nine settings, each beside both of its nulls. ECEs of two settings cannot be "
        "compared."
    ),
    "similarity": (
        "How alike the matrices are that Algorithm 1 averages over: the mean Frobenius cosine of pairs."
    ),
    "co_minimised": "Where Cal_S, risk and eigenvalue ECE of the paper's map are lowest over T.",
    "correctness_diagram": (
        "The share of right answers against λmax. Grey: where it would lie if λmax were the chance of "
        "being right; it is calibrated for the share of the reference, not for that."
    ),
    "auroc": (
        "How well each score ranks right answers above wrong ones, with bootstrap intervals over prompts. "
        "Order only: a ranking says nothing of calibration."
    ),
    "accuracy_rejection": (
        "Accuracy of the answers kept when the least certain are rejected; the grey line is all answers. "
        "The right end rests on few."
    ),
    "baselines": (
        "AUROC of other scores on the same answers and labels. Most of them have no scale at all: a "
        "better order makes no probability."
    ),
    "comparison": (
        "Differences between maps on the same prompts with 95 % intervals; one that leaves out 0 is real "
        "for prompts like these. Negative is better for all but AUROC. Of twenty, one leaves out 0 by "
        "chance."
    ),
    "answers": f"{SAYS} It does not say: {SAYS_NOT}",
    "embedders": (
        "The same answers seen by another embedding model, with maps fitted for it. Two embedders are "
        "about two different density matrices: only the pattern can be compared."
    ),
    "sampling_temperature": (
        "Drawing at another temperature instead of calibrating: chosen on dev by the ECE of the largest "
        "semantic class's share, judged on test. Other answers have another accuracy."
    ),
}
