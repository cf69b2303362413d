"""An evaluation: every experiment in order, in the shape of its results, and what to know first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.domain.jobs.model import FEW_ROWS
from service.domain.study.bench import Bench
from service.domain.study.experiments.algorithm1 import sensitivity, similarity
from service.domain.study.experiments.answers import answers
from service.domain.study.experiments.baselines import Likelihoods, baselines
from service.domain.study.experiments.checks import constant, convergence
from service.domain.study.experiments.comparison import comparison
from service.domain.study.experiments.correctness import auroc, rejection
from service.domain.study.experiments.evidence_map import evidence_map
from service.domain.study.experiments.meanings import BY_EMBEDDING, Meanings, by_embedding
from service.domain.study.experiments.reliability import algorithm1_diagram, correctness, naive, projection
from service.domain.study.experiments.risk_curves import cominimised, depolarized, temperature
from service.domain.study.experiments.side_by_side import embedders
from service.domain.study.model import Experiment, Provenance, Results
from service.domain.study.report_model import PlainWarning
from service.domain.study.report_warnings import few_of_a_kind, files_differ
from service.domain.study.split import describe
from service.domain.study.verdict import verdict

FITTED_ON_DEV = "the model of P(correct), if there is one, rests"
Step = Callable[[], Experiment]
OnExperiment = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """benches: by embedder, the first is the one that all experiments use.

    meanings: None: by the first embedder. likelihoods: None: none recorded. sampling_temperature: that
    baseline as it came out, or why it did not run (it needs a model to draw from).
    """

    benches: Mapping[str, Bench]
    meanings: Meanings | None
    likelihoods: Likelihoods | None
    sampling_temperature: Experiment

    @property
    def first(self) -> Bench:
        """Return the bench of the first embedder."""
        return next(iter(self.benches.values()))


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
    bench, (dev, test) = inputs.first, files
    experiments = run_all(inputs, progress)
    found = cautions(bench)
    return {
        "version": 1,
        "num_samples": bench.test.material.num_samples,
        "seed": bench.seed,
        "embedders": list(inputs.benches),
        "meanings": inputs.meanings.source if inputs.meanings else BY_EMBEDDING,
        "dev": describe(bench.dev, dev.rows, dev.answers),
        "test": describe(bench.test, test.rows, test.answers),
        "experiments": experiments,
        "provenance": provenance,
        "warnings": [one["text"] for one in found] + _warnings(bench, experiments),
        "verdict": verdict(experiments),
        "cautions": found,
    }


def cautions(bench: Bench) -> list[PlainWarning]:
    """Return warnings of few right or wrong answers in a file, which they name, and of files not alike."""
    both = bench.dev, bench.test
    largest = [np.array([one.eigenvalues[0] for one in split.spectra]) for split in both]
    accuracy = bench.dev.labels.right, bench.test.labels.right
    return [
        *few_of_a_kind(accuracy[0], " of the dev file", FITTED_ON_DEV),
        *few_of_a_kind(accuracy[1], " of the test file"),
        *files_differ(accuracy, (largest[0], largest[1])),
    ]


def _warnings(bench: Bench, experiments: Sequence[Experiment]) -> list[str]:
    found = [
        f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
        for name, split in (("dev", bench.dev), ("test", bench.test))
        if len(split) < FEW_ROWS
    ]
    at_bound = {e["name"]: e["headline"].get("at_bound") for e in experiments}
    found += [f"The fit of {name} sits on a bound: {bound}." for name, bound in at_bound.items() if bound]
    left_out = [e["title"] for e in experiments if not e["ran"]]
    return found + ([f"Not run: {', '.join(left_out)}. The reasons stand below."] if left_out else [])


def run_all(inputs: Inputs, progress: OnExperiment | None = None) -> list[Experiment]:
    """Return every experiment. `progress` is told (done, all, what comes). Blocking: seconds to minutes."""
    bench = inputs.first
    found: list[Experiment] = []
    steps = _steps(bench, inputs)
    for number, (what, step) in enumerate(steps):
        if progress is not None:
            progress(number, len(steps), what)
        found.append(step())
    if progress is not None:
        progress(len(steps), len(steps), "done")
    return found


def _steps(bench: Bench, inputs: Inputs) -> Sequence[tuple[str, Step]]:
    return [
        ("estimator convergence", lambda: convergence(bench)),
        ("constant predictor", lambda: constant(bench)),
        ("fit of the temperature", lambda: temperature(bench)),
        ("fit of the depolarised map", lambda: depolarized(bench)),
        ("evidence map", lambda: evidence_map(bench)),
        ("projection reliability", lambda: projection(bench)),
        # The first setting that is not the standard one brings all of them.
        ("naive diagram, and Algorithm 1 in all settings", lambda: naive(bench)),
        ("Algorithm 1", lambda: algorithm1_diagram(bench)),
        ("sensitivity of Algorithm 1", lambda: sensitivity(bench)),
        ("similarity within clusters", lambda: similarity(bench)),
        ("co-minimised measures", lambda: cominimised(bench)),
        ("correctness", lambda: correctness(bench)),
        ("AUROC", lambda: auroc(bench)),
        ("accuracy and rejection", lambda: rejection(bench)),
        ("baselines", lambda: baselines(bench, _meanings(bench, inputs), inputs.likelihoods)),
        ("differences between maps", lambda: comparison(bench)),
        ("what an answer more is worth", lambda: answers(bench)),
        ("embedders", lambda: embedders(inputs.benches)),
        ("sampling temperature", lambda: inputs.sampling_temperature),
    ]


def _meanings(bench: Bench, inputs: Inputs) -> Meanings:
    return inputs.meanings or by_embedding(bench.test)
