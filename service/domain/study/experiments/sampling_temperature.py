"""The sampling-temperature baseline: draw at another temperature instead of calibrating the spectrum.

The temperature is chosen on dev, by the ECE of the largest semantic class's share against correctness, and
judged on test by the eigenvalue ECE of the raw spectra of answers drawn at it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.domain.calibrating.fitting import Stream, rng
from service.domain.study.bench import serve
from service.domain.study.experiments.meanings import by_embedding
from service.domain.study.model import Experiment, TableRow, finite, not_run, ran
from service.domain.study.readings import STANDARD, read_algorithm1
from service.domain.study.split import Split
from service.spectral.maps import Identity
from service.spectral.reliability import projection_reliability, reliability_diagram
from service.spectral.semantic_entropy import class_shares, semantic_classes

NAME, TITLE = "sampling_temperature", "Sampling-temperature baseline"


@dataclass(frozen=True, slots=True)
class ChosenTemperature:
    """The temperature chosen on dev, and what was seen at each."""

    sampling_temperature: float
    points: list[TableRow]


def not_drawn(reason: str) -> Experiment:
    """Return that the baseline was not run, and why."""
    return not_run(NAME, TITLE, reason)


def choose(dev: Mapping[float, Split]) -> ChosenTemperature:
    """Return the sampling temperature of least ECE; dev: the same prompts, answered at each."""
    points = [_point(t, split) for t, split in sorted(dev.items())]
    # No ECE is above 1: 2 puts those that are unknown last.
    best = min(points, key=lambda p: p["class_share_ece"] if isinstance(p["class_share_ece"], float) else 2.0)
    return ChosenTemperature(float(best["sampling_temperature"] or 0.0), points)


def _point(temperature: float, split: Split) -> TableRow:
    shares = np.array(
        [
            class_shares(semantic_classes(m.equivalent), c).max()
            for m, c in zip(by_embedding(split).prompts, split.counts, strict=True)
        ]
    )
    diagram = reliability_diagram(np.clip(shares, 0.0, 1.0), split.labels.right)
    return {
        "sampling_temperature": float(temperature),
        "class_share_ece": finite(diagram.ece),
        "mean_class_share": float(shares.mean()),
        "accuracy": float(split.labels.right.mean()),
    }


def judge(choice: ChosenTemperature, test: Split, seed: int = 0) -> Experiment:
    """Return the eigenvalue ECE on test, answered at the chosen temperature, with the bands of both nulls."""
    served = serve("raw", Identity(), test)
    paper = read_algorithm1(served, test, [STANDARD], rng(seed, Stream.ALGORITHM1))[STANDARD]
    drawn, rescaled = paper.nulls.drawn.band, paper.nulls.rescaled.band
    headline: TableRow = {
        "sampling_temperature": choice.sampling_temperature,
        "at_bound": _at_bound(choice),
        "test_eigenvalue_ece": finite(paper.diagram.ece),
        "band_low": finite(drawn.ece_low),
        "band_high": finite(drawn.ece_high),
        "rescaled_low": finite(rescaled.ece_low),
        "rescaled_high": finite(rescaled.ece_high),
        "test_projection_ece": projection_reliability(served.lambda_max, test.c1).ece,
        "test_accuracy": float(test.labels.right.mean()),
    }
    return ran(NAME, TITLE, headline, choice.points)


def _at_bound(choice: ChosenTemperature) -> str:
    tried = [point["sampling_temperature"] for point in choice.points]
    names = {tried[0]: "the lowest tried is the best", tried[-1]: "the highest tried is the best"}
    return names.get(choice.sampling_temperature, "")
