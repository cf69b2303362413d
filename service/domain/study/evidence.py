"""The evidence: what each map does to prompts that it was not fitted on, as numbers and as curves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.fitting import Fitted
from service.domain.calibrating.labels import Labels
from service.domain.calibrating.material import Material
from service.domain.study.report_model import (
    Band,
    Bin,
    Curves,
    Estimate,
    NullPart,
    RejectionCurve,
    SamplesAt,
    ServedRow,
    TemperatureCurve,
)
from service.spectral.algorithm1 import Clustering, algorithm1, cluster_prompts, nulls
from service.spectral.batch import overlaps
from service.spectral.correctness import Auroc, accuracy_rejection, bootstrap_auroc
from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum, spectrum
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, ServedSpectrum, TemperatureMap
from service.spectral.reliability import (
    ConsistencyBand,
    ReliabilityDiagram,
    label_band,
    projection_brier,
    projection_reliability,
    reliability_diagram,
)
from service.spectral.residual_null import Null, projection_null
from service.spectral.risk import DevSet, mean_entropy, risk
from service.spectral.sample_size import lambda_max_by_size

Floats = NDArray[np.float64]
CURVE_POINTS = 61
CURVE_PROMPTS = 500
CURVE_RANGE = (0.05, 50.0)


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinities: JSON has neither."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, low: float = math.nan, high: float = math.nan) -> Estimate:
    """Return a figure with its interval."""
    return {"value": finite(value), "low": finite(low), "high": finite(high)}


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """The full rows as one map serves them, each prompt by the map of the fold that held it out.

    served: one per prompt; lambda_max, entropy: (n,).
    """

    served: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats


class FullRows:
    """The full rows, prepared once for all maps: spectra, density matrices, targets, labels."""

    def __init__(self, material: Material, fitted: Fitted, labels: Labels) -> None:
        chosen = [material.answers[i] for i in material.full]
        counts = [np.bincount(a.index, minlength=len(a.vectors)) for a in chosen]
        self._fitted, self._labels = fitted, labels
        self._dev: DevSet = fitted.dev
        self._stack = DensityStack.of([a.vectors for a in chosen], counts)
        self._targets = DensityStack.of([a.references for a in chosen])
        self._spectra: list[Spectrum] = [
            spectrum(a.vectors, c, dimension=material.dimension) for a, c in zip(chosen, counts, strict=True)
        ]
        self._parts = [overlaps(a) for a in chosen]
        self._c1 = np.clip(self._dev.alignment[:, 0], 0.0, 1.0)

    def held_out(self, name: str) -> HeldOut:
        """Return what the named candidate serves."""
        maps, fold = self._fitted.held_out.maps[name], self._fitted.held_out.fold
        served = [maps[fold[i]].serve(one.eigenvalues, one.dimension) for i, one in enumerate(self._spectra)]
        return HeldOut(
            served,
            np.clip([s.lambda_max for s in served], 0.0, 1.0),
            np.array([s.entropy for s in served]),
        )

    def clusters(self, held: HeldOut) -> Clustering:
        """Return the bins and clusters of Algorithm 1."""
        return cluster_prompts(self._stack, held.lambda_max)

    def row(self, name: str, held: HeldOut, clusters: Clustering, seed: int) -> ServedRow:
        """Return the figures of one map."""
        right = self._labels.right
        rng = np.random.default_rng([seed, 4])
        [both] = nulls([clusters], self._stack, self._spectra, held.served, self._targets, rng)
        return {
            "map": name,
            "risk": float(self._fitted.held_out.risks[name].mean()),
            "projection_ece": projection_reliability(held.lambda_max, self._c1).ece,
            "projection_brier": projection_brier(held.lambda_max, self._c1),
            "algorithm1_ece": finite(algorithm1(clusters, self._targets).ece),
            "algorithm1_band": _band(both.drawn.band),
            "auroc_lambda_max": _auroc(held.lambda_max, right, seed),
            "auroc_entropy": _auroc(-held.entropy, right, seed),
            "rejection_area": finite(accuracy_rejection(held.lambda_max, right).area),
            "mean_lambda_max": float(held.lambda_max.mean()),
            "mean_entropy": float(held.entropy.mean()),
            "projection_null": _null(self._projection_null(held, seed)),
            "algorithm1_drawn": _null(both.drawn),
            "algorithm1_rescaled": _null(both.rescaled),
            "cluster_sizes": clusters.cluster_sizes.tolist(),
            "singletons": clusters.singletons,
        }

    def squared_gaps(self, held: HeldOut) -> Floats:
        """Return (lambda_max - u_1^T Y u_1)^2 (n,), whose mean is the projection Brier score."""
        return np.asarray(np.square(held.lambda_max - self._c1))

    def _projection_null(self, held: HeldOut, seed: int) -> Null:
        return projection_null(held.lambda_max, self._c1, np.random.default_rng([seed, 7]))

    def projection(self, held: HeldOut, seed: int) -> list[Bin]:
        """Return the projection diagram with the band of its null."""
        diagram = projection_reliability(held.lambda_max, self._c1)
        return _bins(diagram, len(self._dev), self._projection_null(held, seed).band)

    def algorithm1(self, clusters: Clustering) -> list[Bin]:
        """Return the diagram of Algorithm 1."""
        return _bins(algorithm1(clusters, self._targets), len(self._dev))

    def correctness(self, held: HeldOut, seed: int) -> list[Bin]:
        """Return the correctness diagram with the band of right and wrong answers."""
        diagram = reliability_diagram(held.lambda_max, self._labels.right)
        return _bins(diagram, len(self._dev), label_band(held.lambda_max, np.random.default_rng([seed, 8])))

    def rejection(self, name: str, held: HeldOut) -> RejectionCurve:
        """Return the accuracy-rejection curve, at 41 points at most."""
        curve = accuracy_rejection(held.lambda_max, self._labels.right)
        kept = np.unique(np.linspace(0, curve.rejected.size - 1, 41).astype(int))
        return {
            "map": name,
            "rejected": curve.rejected[kept].tolist(),
            "accuracy": curve.accuracy[kept].tolist(),
        }

    def samples(self, seed: int) -> list[SamplesAt]:
        """Return lambda_max by number of answers, at about eight numbers, over 500 prompts at most."""
        rng = np.random.default_rng([seed, 5])
        parts, size = self._parts[:CURVE_PROMPTS], self._parts[0].index.size
        step = 5 * -(-size // 40) if size >= 10 else 1
        pairs = [p.cosines for p in parts], [p.index for p in parts]
        found = lambda_max_by_size(*pairs, rng, step=step)
        return [
            {"num_samples": int(m), "mean": float(mean), "deviation": float(std)}
            for m, mean, std in zip(found.sizes, found.mean, found.std, strict=True)
        ]

    def temperature(self) -> TemperatureCurve:
        """Return risk and entropy of the paper's map over a log grid of T."""
        grid = np.geomspace(*CURVE_RANGE, CURVE_POINTS)
        maps: list[CalibrationMap] = [TemperatureMap(float(t), DEFAULT_EPS) for t in grid]
        return {
            "temperatures": grid.tolist(),
            "risk": [risk(m, self._dev) for m in maps],
            "entropy": [mean_entropy(m, self._dev) for m in maps],
            "optimum": self._fitted.fits["temperature"].map.temperature,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Figures of every candidate, curves, and by candidate the squared gaps (n,) of projection Brier."""

    served: list[ServedRow]
    curves: Curves
    squared_gaps: Mapping[str, Floats]


def evidence(material: Material, fitted: Fitted, labels: Labels, seed: int) -> Evidence:
    """Return what held-out prompts show of every candidate. Blocking."""
    full = FullRows(material, fitted, labels)
    held = {name: full.held_out(name) for name in fitted.held_out.maps}
    clusters = {name: full.clusters(one) for name, one in held.items()}
    rows = [full.row(name, one, clusters[name], seed) for name, one in held.items()]
    gaps = {name: full.squared_gaps(one) for name, one in held.items()}
    return Evidence(rows, _curves(full, held, clusters, seed), gaps)


def _curves(
    full: FullRows, held: Mapping[str, HeldOut], clusters: Mapping[str, Clustering], seed: int
) -> Curves:
    return {
        "temperature": full.temperature(),
        "projection": {name: full.projection(one, seed) for name, one in held.items()},
        "algorithm1": {name: full.algorithm1(one) for name, one in clusters.items()},
        "correctness": {name: full.correctness(one, seed) for name, one in held.items()},
        "rejection": [full.rejection(name, one) for name, one in held.items()],
        "samples": full.samples(seed),
    }


def _band(band: ConsistencyBand) -> Band:
    return {"mean": finite(band.ece_mean), "low": finite(band.ece_low), "high": finite(band.ece_high)}


def _null(null: Null) -> NullPart:
    return {**_band(null.band), "p_value": finite(null.p_value), "draws": null.band.num_draws}


def _auroc(scores: Floats, right: Iterable[bool], seed: int) -> Estimate:
    found: Auroc = bootstrap_auroc(scores, list(right), np.random.default_rng([seed, 6]))
    return estimate(found.value, found.low, found.high)


def _bins(diagram: ReliabilityDiagram, size: int, band: ConsistencyBand | None = None) -> list[Bin]:
    """Return the bins that have a target; without a band its ends are null."""
    unknown = np.full(diagram.mass.size, np.nan)
    ends = zip(*((band.low, band.high) if band else (unknown, unknown)), strict=True)
    edges = zip(diagram.edges[:-1], diagram.edges[1:], strict=True)
    columns = zip(edges, diagram.mass, diagram.mean_predicted, diagram.mean_target, ends, strict=True)
    return [
        {
            "lower": float(lower),
            "upper": float(upper),
            "count": round(float(mass) * size),
            "predicted": float(predicted),
            "observed": float(observed),
            "band_low": finite(low),
            "band_high": finite(high),
        }
        for (lower, upper), mass, predicted, observed, (low, high) in columns
        if math.isfinite(observed)
    ]
