"""All experiments in order: from prepared files to results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from service.domain.study.bench import Bench
from service.domain.study.experiments.algorithm1 import sensitivity, similarity
from service.domain.study.experiments.baselines import baselines
from service.domain.study.experiments.cominimised import cominimised
from service.domain.study.experiments.comparison import comparison
from service.domain.study.experiments.constant import constant
from service.domain.study.experiments.convergence import convergence
from service.domain.study.experiments.correctness import auroc, rejection
from service.domain.study.experiments.diagrams import algorithm1_diagram, correctness, naive, projection
from service.domain.study.experiments.embedders import embedders
from service.domain.study.experiments.maps import depolarized, temperature
from service.domain.study.experiments.meanings import Meanings, by_embedding
from service.domain.study.experiments.reliability import Readings
from service.domain.study.likelihoods import Likelihoods
from service.domain.study.model import Experiment

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
    readings = cache(lambda: Readings(bench))  # made by the first step that needs them
    return [
        ("estimator convergence", lambda: convergence(bench)),
        ("constant predictor", lambda: constant(bench)),
        ("fit of the temperature", lambda: temperature(bench)),
        ("fit of the depolarised map", lambda: depolarized(bench)),
        ("projection reliability", lambda: projection(bench)),
        ("naive diagram, and Algorithm 1 in all settings", lambda: naive(bench, readings())),
        ("Algorithm 1", lambda: algorithm1_diagram(bench, readings())),
        ("sensitivity of Algorithm 1", lambda: sensitivity(bench, readings())),
        ("similarity within clusters", lambda: similarity(bench, readings())),
        ("co-minimised measures", lambda: cominimised(bench)),
        ("correctness", lambda: correctness(bench)),
        ("AUROC", lambda: auroc(bench)),
        ("accuracy and rejection", lambda: rejection(bench)),
        ("baselines", lambda: baselines(bench, _meanings(bench, inputs), inputs.likelihoods)),
        ("differences between maps", lambda: comparison(bench)),
        ("embedders", lambda: embedders(inputs.benches)),
        ("sampling temperature", lambda: inputs.sampling_temperature),
    ]


def _meanings(bench: Bench, inputs: Inputs) -> Meanings:
    return inputs.meanings or by_embedding(bench.test)
