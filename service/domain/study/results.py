"""Results in their final shape: what was evaluated, every experiment, and what to know first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.domain.jobs.model import FEW_ROWS
from service.domain.study.bench import Bench
from service.domain.study.cautions import few_of_a_kind, files_differ
from service.domain.study.experiments.meanings import BY_EMBEDDING
from service.domain.study.model import Experiment, Results
from service.domain.study.provenance import Provenance
from service.domain.study.report_model import PlainWarning
from service.domain.study.running import Inputs, OnExperiment, run_all
from service.domain.study.split import describe
from service.domain.study.verdict import verdict


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
    """Return warnings of few right or wrong answers in the test file, and of files that are not alike."""
    both = bench.dev, bench.test
    largest = [np.array([one.eigenvalues[0] for one in split.spectra]) for split in both]
    accuracy = bench.dev.labels.right, bench.test.labels.right
    return [*few_of_a_kind(accuracy[1]), *files_differ(accuracy, (largest[0], largest[1]))]


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
