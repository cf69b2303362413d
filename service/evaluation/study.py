"""A whole evaluation: every experiment in order, what they come to, and what to know first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.calibration.rows import FEW_ROWS
from service.evaluation.baselines import BY_EMBEDDING, Likelihoods, Meanings, baselines, by_embedding
from service.evaluation.experiments import (
    accuracy_kept,
    algorithm1_diagram,
    answers,
    auroc_experiment,
    cominimised,
    comparison,
    constant,
    convergence,
    correctness,
    depolarized,
    embedders,
    evidence_map,
    naive,
    projection,
    sensitivity,
    similarity,
    temperature,
)
from service.evaluation.results import Experiment, Provenance, Results, SplitPart, TableRow, Value
from service.report.diagnostics import EvaluationContext, Split
from service.report.model import PlainWarning
from service.report.summary import caution, few_of_a_kind
from service.report.words import LEVEL

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

DIFFERENT = 0.01  # of two tests per pair of files: one pair in fifty that is alike is called different
FITTED_ON_DEV = "the model of P(correct), if there is one, rests"
WORDS = {
    "raw": "raw scores",
    "temperature": "the paper's map",
    "depolarized": "the depolarized map",
    "evidence": "the evidence map",
}


def verdict(experiments: Sequence[Experiment]) -> list[str]:
    """Return sentences: is it a gain, is what is served calibrated, does it tell right from wrong.

    The last says how many answers to ask for; it is absent from results without that experiment. Each says
    what cannot be told, where an experiment did not run. By risk and by nulls, never by a bare ECE.
    """
    by_name = {one["name"]: one for one in experiments if one["ran"]}
    enough = [str(by_name["answers"]["headline"]["recommendation"])] if "answers" in by_name else []
    return [_gain(by_name), _calibrated(by_name), _ranking(by_name), *enough]


def _gain(by_name: Mapping[str, Experiment]) -> str:
    if "comparison" not in by_name:
        return "Whether the depolarized map is the better one was not tested."
    gap = _one(by_name["comparison"]["points"], second="depolarized", first="temperature", figure="test_risk")
    raw = _one(by_name["comparison"]["points"], second="depolarized", first="raw", figure="projection_brier")
    return (
        f"On the test file the depolarized map's risk is {_against(gap)} that of the paper's map "
        f"({_interval(gap)} nats), and its projection Brier score {_against(raw)} that of raw scores "
        f"({_interval(raw)}).{_gain_of_evidence(by_name)}"
    )


def _gain_of_evidence(by_name: Mapping[str, Experiment]) -> str:
    if not by_name.get("evidence_map"):
        return ""
    gap = _one(by_name["comparison"]["points"], second="evidence", first="depolarized", figure="test_risk")
    return f" The evidence map's risk is {_against(gap)} the depolarized map's ({_interval(gap)} nats)."


def _against(gap: TableRow) -> str:
    if not gap["real"]:
        return "not told apart from"
    return "below" if _number(gap["difference"]) < 0 else "above"


def _interval(gap: TableRow) -> str:
    difference, low, high = (_number(gap[key]) for key in ("difference", "low", "high"))
    return f"difference {difference:+.3f}, 95 % {low:+.3f} to {high:+.3f}"


def _calibrated(by_name: Mapping[str, Experiment]) -> str:
    if "projection_reliability" not in by_name:
        return "Whether the scores are calibrated was not tested."
    headline = by_name["projection_reliability"]["headline"]
    known = {name: words for name, words in WORDS.items() if f"{name}_ece" in headline}
    maps = "; ".join(f"{words} {_projection(headline, name)}" for name, words in known.items())
    return f"By their projection ECE, beside what calibrated scores read on these prompts: {maps}."


def _projection(headline: TableRow, name: str) -> str:
    ece, low, high, p_value = (
        _number(headline[f"{name}_{key}"]) for key in ("ece", "band_low", "band_high", "p_value")
    )
    if p_value <= LEVEL:
        word = "are not calibrated" if name == "raw" else "is not calibrated"
    else:
        word = "shows no miscalibration"
    return f"{word} ({ece:.3f} against {low:.3f} to {high:.3f}, p = {p_value:.2g})"


def _ranking(by_name: Mapping[str, Experiment]) -> str:
    if "auroc" not in by_name:
        return "Whether the scores tell right answers from wrong ones cannot be said: all are of one kind."
    row = _one(by_name["auroc"]["points"], map="depolarized", score="lambda_max")
    value, low, high = (row[key] for key in ("auroc", "low", "high"))
    if not isinstance(value, float) or not isinstance(low, float) or not isinstance(high, float):
        return "Whether the scores tell right answers from wrong ones cannot be said from so few."
    does = "tells" if low > 0.5 else "is not shown to tell"
    return (
        f"The depolarized map's lambda_max {does} right answers from wrong ones (AUROC {value:.3f}, 95 % "
        f"{low:.3f} to {high:.3f})."
    )


def _one(rows: Sequence[TableRow], **where: Value) -> TableRow:
    return next(row for row in rows if all(row[key] == value for key, value in where.items()))


def _number(value: Value) -> float:
    return float(value) if isinstance(value, float | int) else float("nan")


def files_differ(
    accuracy: tuple[NDArray[np.bool_], NDArray[np.bool_]], lambda_max: tuple[Floats, Floats]
) -> Iterator[PlainWarning]:
    """Yield a warning where dev and test differ in accuracy (Fisher), or in mean raw lambda_max (Welch).

    accuracy: right or wrong, lambda_max: in [0, 1], each of the dev (n,) and the test prompts (k,).
    """
    tests = (
        ("accuracy", "share of right answers", accuracy, _fisher(*accuracy)),
        ("lambda_max", "mean raw lambda_max", lambda_max, _welch(*lambda_max)),
    )
    for name, words, (dev, test), p_value in tests:
        if p_value < DIFFERENT:
            text = (
                f"Dev and test are not alike: {words} {dev.mean():.3f} against {test.mean():.3f} "
                f"(p = {p_value:.1g}). A map fitted on one kind of prompt need not fit the other."
            )
            yield caution(f"files_differ_{name}", text)


def _fisher(dev: Bools, test: Bools) -> float:
    from scipy.stats import fisher_exact

    table = np.array([[one.sum(), one.size - one.sum()] for one in (dev, test)])
    return float(fisher_exact(table).pvalue)  # exact: right answers may be a handful


def _welch(dev: Floats, test: Floats) -> float:
    """Return the p-value of equal means; 1 where there is no spread to compare by."""
    from scipy.stats import ttest_ind

    if min(dev.size, test.size) < 2 or np.ptp(dev) == 0 == np.ptp(test):
        return 1.0
    # Welch: the two files need not spread alike.
    return float(ttest_ind(dev, test, equal_var=False).pvalue)


Step = Callable[[], Experiment]
OnExperiment = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """contexts: by embedder, the first is the one that all experiments use.

    meanings: None: by the first embedder. likelihoods: None: none recorded. sampling_temperature: that
    baseline as it came out, or why it did not run (it needs a model to draw from).
    """

    contexts: Mapping[str, EvaluationContext]
    meanings: Meanings | None
    likelihoods: Likelihoods | None
    sampling_temperature: Experiment

    @property
    def first(self) -> EvaluationContext:
        """The context of the first embedder."""
        return next(iter(self.contexts.values()))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is said of a file: rows in it, and answers per prompt before they were cut to those used."""

    rows: int
    answers: int


def make_results(
    inputs: Inputs,
    files: tuple[FileFacts, FileFacts],
    provenance: Provenance,
    progress: OnExperiment | None = None,
) -> Results:
    """Run every experiment on dev and test `files`. Blocking: seconds to minutes."""
    context, (dev, test) = inputs.first, files
    experiments = run_all(inputs, progress)
    about_files = cautions(context)
    return {
        "version": 1,
        "num_samples": context.test.material.num_samples,
        "seed": context.seed,
        "embedders": list(inputs.contexts),
        "meanings": inputs.meanings.source if inputs.meanings else BY_EMBEDDING,
        "dev": _describe(context.dev, dev),
        "test": _describe(context.test, test),
        "experiments": experiments,
        "provenance": provenance,
        "warnings": [one["text"] for one in about_files] + _warnings(context, experiments),
        "verdict": verdict(experiments),
        "cautions": about_files,
    }


def _describe(split: Split, facts: FileFacts) -> SplitPart:
    return {
        "rows": facts.rows,
        "used": len(split),
        "answers_in_file": facts.answers,
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.labels.source,
        "accuracy": float(split.labels.right.mean()),
    }


def cautions(context: EvaluationContext) -> list[PlainWarning]:
    """Return warnings of few right or wrong answers in a file, which they name, and of files not alike."""
    both = context.dev, context.test
    largest = [np.array([one.eigenvalues[0] for one in split.spectra]) for split in both]
    accuracy = context.dev.labels.right, context.test.labels.right
    return [
        *few_of_a_kind(accuracy[0], " of the dev file", FITTED_ON_DEV),
        *few_of_a_kind(accuracy[1], " of the test file"),
        *files_differ(accuracy, (largest[0], largest[1])),
    ]


def _warnings(context: EvaluationContext, experiments: Sequence[Experiment]) -> list[str]:
    warnings = [
        f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
        for name, split in (("dev", context.dev), ("test", context.test))
        if len(split) < FEW_ROWS
    ]
    at_bound = {e["name"]: e["headline"].get("at_bound") for e in experiments}
    warnings += [f"The fit of {name} sits on a bound: {bound}." for name, bound in at_bound.items() if bound]
    left_out = [e["title"] for e in experiments if not e["ran"]]
    return warnings + ([f"Not run: {', '.join(left_out)}. The reasons stand below."] if left_out else [])


def run_all(inputs: Inputs, progress: OnExperiment | None = None) -> list[Experiment]:
    """Return every experiment. `progress` is told (done, all, what comes). Blocking: seconds to minutes."""
    context = inputs.first
    made: list[Experiment] = []
    steps = _steps(context, inputs)
    for number, (what, step) in enumerate(steps):
        if progress is not None:
            progress(number, len(steps), what)
        made.append(step())
    if progress is not None:
        progress(len(steps), len(steps), "done")
    return made


def _steps(context: EvaluationContext, inputs: Inputs) -> Sequence[tuple[str, Step]]:
    meanings = inputs.meanings or by_embedding(context.test)
    return [
        ("estimator convergence", lambda: convergence(context)),
        ("constant predictor", lambda: constant(context)),
        ("fit of the temperature", lambda: temperature(context)),
        ("fit of the depolarized map", lambda: depolarized(context)),
        ("evidence map", lambda: evidence_map(context)),
        ("projection reliability", lambda: projection(context)),
        # The first setting that is not the standard one brings all of them.
        ("naive diagram, and Algorithm 1 in all settings", lambda: naive(context)),
        ("Algorithm 1", lambda: algorithm1_diagram(context)),
        ("sensitivity of Algorithm 1", lambda: sensitivity(context)),
        ("similarity within clusters", lambda: similarity(context)),
        ("co-minimised measures", lambda: cominimised(context)),
        ("correctness", lambda: correctness(context)),
        ("AUROC", lambda: auroc_experiment(context)),
        ("accuracy and rejection", lambda: accuracy_kept(context)),
        ("baselines", lambda: baselines(context, meanings, inputs.likelihoods)),
        ("differences between maps", lambda: comparison(context)),
        ("numbers of answers", lambda: answers(context)),
        ("embedders", lambda: embedders(inputs.contexts)),
        ("sampling temperature", lambda: inputs.sampling_temperature),
    ]
