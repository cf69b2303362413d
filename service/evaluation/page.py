"""The page of an evaluation: the verdict, and each experiment as a sentence, a table and perhaps a figure."""

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
from service.report.words import LABELLED, MAPS, MISSING, fingerprint_rows, number, typeset, when

SPLITS = {"dev": "Dev", "test": "Test"}
ANSWERS = {"file": "answers as the file has them", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}
UNKNOWN = "not known: the answers came with the files"

# Experiments whose rows are few enough to read, and their columns.
COLUMNS: dict[str, dict[str, str]] = {
    "evidence_map": {
        "missing_mass": "Missing mass u, mean",
        "count": "Prompts",
        "depolarization": "g, mean",
        "test_risk_evidence": "Test risk, evidence",
        "test_risk_depolarized": "depolarized",
    },
    "sensitivity": {
        "map": "Map",
        "bins": "B",
        "clusters": "C",
        "ece": "Eigenvalue ECE",
        "band_low": "References drawn, from",
        "band_high": "to",
        "rescaled_low": "Rescaled, from",
        "rescaled_high": "to",
    },
    "auroc": {
        "map": "Map",
        "score": "Score",
        "auroc": "AUROC",
        "low": "95 % from",
        "high": "to",
        "standard_error": "Standard error",
        "rejection_area": "Rejection area",
    },
    "baselines": {
        "score": "Score",
        "note": "How",
        "auroc": "AUROC",
        "low": "95 % from",
        "high": "to",
        "rejection_area": "Rejection area",
    },
    "comparison": {
        "figure": "Figure",
        "second": "Map",
        "first": "minus",
        "difference": "Difference",
        "low": "95 % from",
        "high": "to",
        "real": "Leaves out 0",
    },
    "embedders": {
        "embedder": "Embedder",
        "map": "Map",
        "temperature": "T",
        "depolarization": "g",
        "intercept": "a",
        "slope": "b",
        "test_risk": "Test risk",
        "projection_ece": "Projection ECE",
        "projection_band_low": "If calibrated, from",
        "projection_band_high": "to",
        "algorithm1_ece": "Eigenvalue ECE",
        "algorithm1_band_low": "References drawn, from",
        "algorithm1_band_high": "to",
        "algorithm1_rescaled_low": "Rescaled, from",
        "algorithm1_rescaled_high": "to",
        "auroc": "AUROC",
        "auroc_low": "95 % from",
        "auroc_high": "to",
    },
    "co_minimised": {
        "temperature": "T",
        "cal_s": "Cal_S, nats",
        "risk": "Risk, nats",
        "eigenvalue_ece": "Eigenvalue ECE",
    },
    "sampling_temperature": {
        "sampling_temperature": "Sampling temperature",
        "class_share_ece": "ECE, dev",
        "mean_class_share": "Mean share of the largest class",
        "accuracy": "Accuracy, dev",
    },
}


# Experiments with a row per map, from the headline: heading, and the keys of a cell ("{}": a figure).
_ECE: dict[str, tuple[str, ...]] = {
    "ECE": ("{}", "ece"),
    "Calibrated scores read": ("{} ({} to {})", "band_mean", "band_low", "band_high"),
}
_ALGORITHM1: dict[str, tuple[str, ...]] = {
    "Eigenvalue ECE": ("{}", "ece"),
    "a: references drawn": ("{} ({} to {})", "band_mean", "band_low", "band_high"),
    "p, a": ("{}", "p_value"),
    "b: real ones, rescaled": ("{} ({} to {})", "rescaled_mean", "rescaled_low", "rescaled_high"),
    "p, b": ("{}", "rescaled_p_value"),
    "Clusters": ("{}", "clusters"),
    "Prompts in a cluster": ("{} to {}", "cluster_size_least", "cluster_size_most"),
    "median": ("{:g}", "cluster_size_median"),
    "Prompts alone, ignored": ("{}", "singletons"),
}
BY_MAP: dict[str, dict[str, tuple[str, ...]]] = {
    "projection_reliability": {**_ECE, "p": ("{}", "p_value")},
    "naive_diagram": _ALGORITHM1,
    "algorithm1_diagram": _ALGORITHM1,
    "correctness_diagram": _ECE,
    "similarity": {"Within bins": ("{}", "within_bin"), "Within clusters": ("{}", "within_cluster")},
    "accuracy_rejection": {"Area by λmax": ("{}", "lambda_max_area"), "by entropy": ("{}", "entropy_area")},
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(experiment: Experiment) -> Table | None:
    """Return the table to show under a figure, if its rows are worth reading."""
    if not experiment["ran"]:
        return None
    if experiment["name"] in BY_MAP:
        return _by_map(experiment, BY_MAP[experiment["name"]])
    columns = COLUMNS.get(experiment["name"])
    if columns is None:
        return None
    rows = [[cell(row.get(key)) for key in columns] for row in experiment["points"]]
    return Table(list(columns.values()), rows)


def _by_map(experiment: Experiment, columns: Mapping[str, tuple[str, ...]]) -> Table:
    """Return one row per map of the headline."""
    headline, [(_, key), *_] = experiment["headline"], columns.values()
    names = [name for name in MAP_NAMES if f"{name}_{key}" in headline]
    rows = [[MAPS[name], *(_cells(headline, name, *column) for column in columns.values())] for name in names]
    return Table(["Map", *columns], rows)


def _cells(headline: TableRow, name: str, form: str, *keys: str) -> str:
    values = [headline.get(f"{name}_{key}") for key in keys]
    if all(value is None for value in values):
        return MISSING
    return form.format(*(value if ":" in form else cell(value) for value in values))


def cell(value: Value) -> str:
    """Return a value as a cell of a table."""
    if isinstance(value, bool):  # before int, which a bool is
        return "yes" if value else "no"
    if isinstance(value, str):
        return MAPS.get(value, value.replace("lambda_max", "λmax").replace("_", " "))
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
                f"ECE {_of(experiment, f'{one}_ece')}",
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
                "sentence": sentence(one),
                "caption": CAPTIONS[one["name"]],
                "table": table(one),
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
        "Risk of our map over the depolarization g, at its fitted temperature. T and g trade off: the "
        "data pin both down less sharply than this curve."
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


def _of(experiment: Experiment, key: str, digits: int = 3) -> str:
    value = experiment["headline"].get(key)
    return number(float(value) if isinstance(value, int | float) else None, digits)


def _with_interval(experiment: Experiment, key: str, low: str = "{}_low", high: str = "{}_high") -> str:
    ends = (_of(experiment, end.format(key), 2) for end in (low, high))
    return f"{_of(experiment, key, 2)} (95 % {' to '.join(ends)})"


def _maps(experiment: Experiment, key: str, what: str) -> str:
    names = [name for name in MAP_NAMES if f"{name}_{key}" in experiment["headline"]]
    figures = (f"{MAPS[name]} {_of(experiment, f'{name}_{key}')}" for name in names)
    return f"{what}: {', '.join(figures)}."


def _real(e: Experiment) -> str:
    real = [
        f"{MAPS[str(p['second'])]} − {MAPS[str(p['first'])]} {number(float(str(p['difference'])))}"
        for p in e["points"]
        if p["real"] and p["figure"] == "cv_risk"
    ]
    return f"Cross-validated risk differences whose interval leaves out 0: {', '.join(real) or 'none'}."


def _best_scores(e: Experiment) -> str:
    aurocs = {name: value for name, value in e["headline"].items() if isinstance(value, float)}
    best, ours = (max(names, key=aurocs.__getitem__) for names in (aurocs, [n for n in aurocs if "(" in n]))
    return f"Best AUROC: {best} {number(aurocs[best])}; best of ours: {ours} {number(aurocs[ours])}."


_SENTENCES: dict[str, Callable[[Experiment], str]] = {
    "estimator_convergence": lambda e: (
        f"From {_of(e, 'from_num_samples', 0)} to {_of(e, 'to_num_samples', 0)} answers the mean λmax goes "
        f"from {_of(e, 'mean_at_first')} to {_of(e, 'mean_at_last')}."
    ),
    "constant_predictor": lambda e: (
        f"Risk is lowest at T = {_of(e, 'best_temperature', 4)} (95 % {_of(e, 'low')} to {_of(e, 'high')})."
    ),
    "risk_and_entropy": lambda e: (
        f"T = {_with_interval(e, 'temperature', 'low', 'high')}; test risk {_of(e, 'test_risk')} nats."
    ),
    "depolarized_map": lambda e: (
        f"T = {_with_interval(e, 'temperature')}, g = {_with_interval(e, 'depolarization')}; test risk "
        f"{_of(e, 'test_risk')} nats."
    ),
    "evidence_map": lambda e: (
        f"T = {_with_interval(e, 'temperature')}, a = {_with_interval(e, 'intercept')}, b = "
        f"{_with_interval(e, 'slope')}; cross-validated risk {_of(e, 'cv_risk')} nats, depolarized "
        f"{_of(e, 'cv_risk_depolarized')}; test risk {_of(e, 'test_risk')}."
    ),
    "projection_reliability": lambda e: _maps(e, "ece", "ECE"),
    "naive_diagram": lambda e: _maps(e, "ece", "ECE"),
    "algorithm1_diagram": lambda e: _maps(e, "ece", "ECE"),
    "sensitivity": lambda e: f"{_maps(e, 'least', 'Least ECE')} {_maps(e, 'most', 'Most ECE')}",
    "similarity": lambda e: f"All pairs {_of(e, 'all_pairs')}.",
    "co_minimised": lambda e: f"{e['headline']['claim']} {_maps(e, 'cal_s', 'Cal_S in nats')}",
    "correctness_diagram": lambda e: _maps(e, "ece", "ECE"),
    "auroc": lambda e: f"{_maps(e, 'lambda_max', 'λmax')} {_maps(e, 'entropy', 'Entropy')}",
    "accuracy_rejection": lambda e: f"Accuracy of all: {_of(e, 'accuracy')}.",
    "baselines": _best_scores,
    "comparison": _real,
    "answers": lambda e: str(e["headline"]["recommendation"]),
    "embedders": lambda e: f"{'; '.join(f'{k} {_of(e, k)}' for k in e['headline'])}.",
    "sampling_temperature": lambda e: (
        f"Chosen: {_of(e, 'sampling_temperature', 2)}; test eigenvalue ECE {_of(e, 'test_eigenvalue_ece')} "
        f"(references drawn {_of(e, 'band_low')} to {_of(e, 'band_high')}, rescaled "
        f"{_of(e, 'rescaled_low')} to {_of(e, 'rescaled_high')})."
    ),
}


def sentence(experiment: Experiment) -> str:
    """Return the experiment's result in words; why not, where it did not run."""
    if not experiment["ran"]:
        return f"Not run: {experiment['reason']}"
    return typeset(_SENTENCES[experiment["name"]](experiment))
