"""An evaluation: the figures of a report on a test file, plus the experiments of the paper.

Maps are fitted on dev and judged on test. Figures that a calibration's report has, too, share its code.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.algorithm1 import Clustering, algorithm1, cluster_labels, cluster_prompts, nulls
from lab.baselines import Meanings, baselines, by_embedding
from lab.density import DensityStack, calibration_error, frobenius_cosines
from lab.maps import in_short, null_part, served_figures
from lab.paper import constant_predictor, convergence, mean_cosine, scaled, similarity
from lab.rejection import rejection
from lab.resampling import (
    ALGORITHM1,
    CONSTANT,
    CONVERGENCE,
    DEFAULT,
    Resamples,
    figure_difference,
)
from lab.splits import Split
from lab.two_files import TwoFiles
from service.calibration.fitting import Stream
from service.calibration.rows import FEW_ROWS
from service.embedding.port import Embedder
from service.report.report import answers_part, bins, fits_part
from service.report.words import Caution, about_fit, caution, estimate, few_of_a_kind, finite
from service.spectral.dev_set import mean_entropy, risk
from service.spectral.reliability import auroc, label_band, reliability_diagram
from service.spectral.resampling import Difference
from service.spectral.spectrum import DEFAULT_EPS, CalibrationMap, TemperatureMap

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Few, because each needs its own clusters, and Cal_S over all prompts.
TEMPERATURES = np.geomspace(0.25, 32.0, 15)
CURVE_TEMPERATURES = np.geomspace(0.05, 50.0, 61)  # between the bounds of the fit
NUM_BINS, CLUSTERS = 8, 5  # of Algorithm 1, as the paper has them
GRID = tuple(product((6, 8, 10), (3, 5, 7)))  # other numbers of bins and clusters
MEASURES = ("cal_s", "risk", "eigenvalue_ece")
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MAX_COSINES = 4000  # with more prompts, the table of all cosines (8 bytes per pair) is too large
FITTED_ON_DEV = "the model of P(correct), if there is one, rests"


class Evaluation(TwoFiles):
    """Maps fitted on `dev` and judged on `test`, also by Algorithm 1.

    vectors: embedding (d,) of each answer and reference of `test`, by text.
    """

    def __init__(
        self,
        dev: Split,
        test: Split,
        vectors: Mapping[str, NDArray[np.floating]],
        *,
        seed: int = 0,
        resamples: Resamples = DEFAULT,
    ) -> None:
        super().__init__(dev, test, seed=seed, resamples=resamples)
        self._vectors = vectors
        self.lab_resamples = resamples
        self._diagrams: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}

    @cached_property
    def stack(self) -> DensityStack:
        """The density matrices of the answers to the test prompts."""
        return self._stack(self.test.texts, self.test.counts)

    @cached_property
    def targets(self) -> DensityStack:
        """The density matrices of the references of the test prompts."""
        material = self.test.material
        return self._stack([material.rows[i].right_texts for i in material.full])

    def _stack(
        self, texts: Sequence[Sequence[str]], counts: Sequence[NDArray[np.int_]] | None = None
    ) -> DensityStack:
        return DensityStack.of([[self._vectors[text] for text in of_row] for of_row in texts], counts)

    @cached_property
    def cosines(self) -> Floats:
        """The Frobenius cosines (n, n) of the test prompts, for at most `MAX_COSINES` of them."""
        return frobenius_cosines(self.stack)

    def clustering(self, name: str, num_bins: int = NUM_BINS, num_clusters: int = CLUSTERS) -> Clustering:
        """Return the bins and clusters of Algorithm 1 under a map."""
        cosines = self.cosines if len(self.test) <= MAX_COSINES else None
        sizes = {"num_bins": num_bins, "num_clusters": num_clusters}
        return cluster_prompts(self.stack, self.served(name).lambda_max, cosines=cosines, **sizes)

    def algorithm1(self, name: str, num_clusters: int = CLUSTERS, num_bins: int = NUM_BINS) -> dict[str, Any]:
        """Return Algorithm 1 of a map, with `num_clusters` clusters per bin: 1, or one of `GRID`.

        drawn, rescaled: its nulls, see `Nulls`. cluster_sizes: of the clusters used. singletons: number of
        prompts that it ignores. bins: the diagram, with the band of the null with drawn references.
        """
        if name not in self._diagrams:
            self._diagrams[name] = self._all_diagrams(name)
        return self._diagrams[name][num_bins, num_clusters]

    def _all_diagrams(self, name: str) -> dict[tuple[int, int], dict[str, Any]]:
        """Return Algorithm 1 by numbers of bins and of clusters, with nulls in the same worlds."""
        settings = ((NUM_BINS, 1), *GRID)
        clusterings = [self.clustering(name, *setting) for setting in settings]
        worlds = self.stack, self.test.spectra, self.served(name).spectra, self.targets
        both = nulls(clusterings, *worlds, self.rng(ALGORITHM1), num_draws=self.lab_resamples.nulls)
        parts = {}
        for setting, clusters, of_clusters in zip(settings, clusterings, both, strict=True):
            diagram = algorithm1(clusters, self.targets)
            parts[setting] = {
                "map": name,
                "ece": finite(diagram.ece),
                "drawn": null_part(of_clusters.drawn),
                "rescaled": null_part(of_clusters.rescaled),
                "cluster_sizes": clusters.cluster_sizes.tolist(),
                "singletons": clusters.singletons,
                "bins": bins(diagram, len(self.test), of_clusters.drawn.band),
            }
        return parts


def correctness(context: Evaluation, scores: Floats) -> list[dict[str, Any]]:
    """Return the bins of right answers by lambda_max (n,), with its 95 % band if it were P(right)."""
    worlds = context.resamples.band
    band = label_band(scores, context.rng(Stream.CORRECTNESS), num_draws=worlds)
    return bins(reliability_diagram(scores, context.test.rows.right), len(context.test), band)


def make_results(
    context: Evaluation,
    rows: tuple[int, int],
    provenance: dict[str, Any],
    meanings: Meanings | None = None,
    compared: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, Any]:
    """Run every experiment and return the content of results.json, which the page shows.

    rows: number of rows in the dev and the test file. meanings: None: by the embedder.
    compared: of `compare_kernels`, None if no LLM compared answers. progress: called with
    (done, total). The results include the figures of a report and `method`, the map of lowest cross-validated
    risk on dev. A figure that cannot be computed is null, never NaN. Blocks for seconds to minutes.
    """
    progress(0, 3)
    figures = {name: served_figures(context, name) for name in context.maps}
    shared = {
        **fits_part(context),
        "served": [row for row, _ in figures.values()],
        "projection": {name: diagram for name, (_, diagram) in figures.items()},
        "answers": answers_part(context),
    }
    largest = {name: context.served(name).lambda_max for name in context.maps}
    right = context.test.rows.right
    shared["curves"] = {
        "correctness": {name: correctness(context, scores) for name, scores in largest.items()},
        "rejection": [rejection(name, scores, right) for name, scores in largest.items()],
        "temperature": temperature_curve(context),
    }
    progress(1, 3)
    error = cal_s(context)
    progress(2, 3)
    risks = {name: fit["cv_risk"] for name, fit in shared["fits"].items()}
    method = min(risks, key=lambda name: risks[name])
    results = {
        "version": 1,
        "num_samples": context.test.material.num_samples,
        "seed": context.seed,
        "method": method,
        "verdict": [*in_short(shared["served"], method), shared["answers"]["recommendation"]],
        "dev": _describe(context.dev, rows[0]),
        "test": _describe(context.test, rows[1]),
        **shared,
        "comparison": list(comparison(context, context.lab_resamples.figure_difference)),
        "algorithm1": [context.algorithm1(name) for name in context.maps],
        # Its target is small for any calibration.
        "naive": [context.algorithm1(name, num_clusters=1) for name in context.maps],
        "sensitivity": list(sensitivity(context)),
        "similarity": similarities(context),
        "calibration_error": error,
        "convergence": convergence(context.test.answers, context.rng(CONVERGENCE)),
        "constant_predictor": constant_predictor(
            context.targets, context.rng(CONSTANT), context.lab_resamples.optimum
        ),
        "baselines": baselines(context, meanings or by_embedding(context.test)),
        "compared": compared,
        "warnings": list(warnings(context)),
        "provenance": provenance,
    }
    progress(3, 3)
    return results


def provenance(
    version: str, files: dict[str, dict[str, Any]], answers: dict[str, Any] | None, embedder: Embedder
) -> dict[str, Any]:
    """Return the provenance of results made now.

    files: "dev" and "test": `name`, `sha256` (null if a job does not keep them), and `answers_from`: "file"
    (supplied with the file) or "model" (drawn here). answers: by kind of row ("prompt", "messages"), the
    parts of the fingerprint of the answers drawn; None if the files supplied all answers.
    """
    return {
        "version": version,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "eps": DEFAULT_EPS,
        "files": files,
        "answers": answers,
        "embedder": asdict(embedder.identity),
    }


def _describe(split: Split, rows: int) -> dict[str, Any]:
    return {
        "rows": rows,
        "used": len(split),
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.rows.source,
        "accuracy": float(split.rows.right.mean()),
    }


def sensitivity(context: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield the ECE of Algorithm 1, with its nulls, of each map for each number of bins and clusters."""
    for name, (num_bins, num_clusters) in product(context.maps, GRID):
        part = context.algorithm1(name, num_clusters, num_bins)
        figures_ = {key: part[key] for key in ("map", "ece", "drawn", "rescaled", "singletons")}
        yield {**figures_, "num_bins": num_bins, "num_clusters": num_clusters}


def temperature_curve(context: Evaluation) -> dict[str, Any]:
    """Return mean risk and mean entropy (full space, the paper's map) against T; they meet at the optimum."""
    dev, maps = context.dev.rows.dev, [TemperatureMap(float(t)) for t in CURVE_TEMPERATURES]
    return {
        "temperatures": CURVE_TEMPERATURES.tolist(),
        "risk": [risk(map_, dev) for map_ in maps],
        "entropy": [mean_entropy(map_, dev) for map_ in maps],
        "optimum": context.fitted.fits["temperature"].map.temperature,
    }


def similarities(context: Evaluation) -> dict[str, Any] | None:
    """Return the mean Frobenius cosines within bins and clusters by map, and of all pairs.

    None for more than `MAX_COSINES` test prompts.
    """
    if len(context.test) > MAX_COSINES:
        return None
    by_map = {name: similarity(context.cosines, context.clustering(name)) for name in context.maps}
    return {"all_pairs": mean_cosine(context.cosines), "by_map": by_map}


def cal_s(context: Evaluation) -> dict[str, Any] | None:
    """Return Cal_S in nats of each map, and Cal_S, risk and eigenvalue ECE of the paper's map over T.

    claim: whether all three are lowest at the same T, as the paper claims. None for more than `MAX_COSINES`
    test prompts.
    """
    test = context.test
    if len(test) > MAX_COSINES:
        return None
    stack, targets = context.stack, context.targets
    cosines = context.cosines
    # Clusters of the unscaled matrices, so they are the same at every temperature.
    labels = cluster_labels(cosines, NUM_CLUSTERS)

    def error(maps: Sequence[CalibrationMap]) -> float:
        pairs = zip(maps, test.spectra, strict=True)
        fitted = [map_.fitted(raw.eigenvalues, raw.dimension) for map_, raw in pairs]
        return calibration_error(labels, stack, test.spectra, fitted, targets)

    points = list[dict[str, float | None]]()
    for temperature in TEMPERATURES.tolist():
        map_ = TemperatureMap(temperature)
        same = [map_] * len(test)
        largest = test.served(same, np.empty(0)).lambda_max
        clusters = cluster_prompts(stack, largest, cosines=cosines)
        points.append(
            {
                "temperature": temperature,
                "cal_s": finite(error(same)),
                "risk": finite(risk(map_, test.rows.dev)),
                "eigenvalue_ece": finite(algorithm1(clusters, targets).ece),
            }
        )
    lowest = {name: _lowest_at(points, name) for name in MEASURES}
    return {
        "by_map": {name: finite(error(context.maps_of(name))) for name in context.maps},
        "points": points,
        "scaled": {name: scaled(points, name) for name in MEASURES},
        "lowest_at": lowest,
        "claim": claim(lowest["risk"], lowest["eigenvalue_ece"], lowest["cal_s"]),
    }


def _lowest_at(points: Sequence[dict[str, float | None]], name: str) -> float | None:
    """Return the temperature of the lowest value; None without any value (clusters of one prompt)."""
    values = [(point[name], point["temperature"]) for point in points if point[name] is not None]
    return min(values)[1] if values else None


def claim(risk_at: float | None, ece_at: float | None, cal_s_at: float | None) -> str:
    """Return a sentence on the paper's claim: calibration error, risk and ECE are lowest at one temperature.

    risk_at, ece_at, cal_s_at: temperature on the grid with the lowest value on the test file, None if
    unknown.
    """
    if risk_at is None or ece_at is None or cal_s_at is None:
        return "The paper's claim cannot be tested here: a measure is not known at any temperature."
    others = (("eigenvalue ECE", ece_at), ("Cal_S", cal_s_at))
    off = [f"the {name} at {at:.2g}" for name, at in others if at != risk_at]
    holds = "fails" if ece_at != risk_at else "holds for the ECE only" if off else "holds"
    lowest = ", ".join([f"the risk is lowest at T = {risk_at:.2g}", *off])
    return f"The paper's claim {holds} on these files: {lowest}."


def comparison(context: TwoFiles, resamples: int = DEFAULT.figure_difference) -> Iterator[dict[str, Any]]:
    """Yield the difference (second minus first) of each pair of maps in every figure, paired by prompt.

    Negative = second is better, except for the AUROC. figure: of the served maps on test, or "cv_risk",
    cross-validated on dev. resamples: of a figure that is not a mean. real: True if the interval excludes 0.
    """
    for first, second in combinations(context.risks, 2):
        for figure, difference in _differences(context, second, first, resamples):
            yield {
                "second": second,
                "first": first,
                "figure": figure,
                "difference": estimate(difference.value, difference),
                "real": difference.real,
            }


def _differences(
    context: TwoFiles, second: str, first: str, resamples: int
) -> Iterator[tuple[str, Difference]]:
    served, right = context.served, context.rows.right
    risks, squares = context.fitted.risks, context.squared_gaps
    yield "cv_risk", context.difference(risks[second], risks[first])
    yield "test_risk", context.difference(served(second).risks, served(first).risks)
    yield "projection_brier", context.difference(squares(second), squares(first))

    def ece(name: str, pick: Ints) -> float:
        return reliability_diagram(served(name).lambda_max[pick], context.c1[pick]).ece

    def ranking(name: str, pick: Ints) -> float:
        return auroc(served(name).lambda_max[pick], right[pick])

    yield "projection_ece", _figure_difference(context, ece, second, first, resamples)
    if right.any() and not right.all():
        yield "auroc_lambda_max", _figure_difference(context, ranking, second, first, resamples)


def _figure_difference(
    context: TwoFiles, value: Callable[[str, Ints], float], second: str, first: str, resamples: int
) -> Difference:
    def both(pick: Ints) -> tuple[float, float]:
        return value(second, pick), value(first, pick)

    random = context.rng(Stream.DIFFERENCES)
    return figure_difference(both, len(context.rows), random, resamples=resamples)


def warnings(context: Evaluation) -> Iterator[Caution]:
    """Yield warnings about few rows, few right or wrong answers, and fits on a bound."""
    both = {"dev": context.dev, "test": context.test}
    for name, split in both.items():
        if len(split) < FEW_ROWS:
            text = f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
            yield caution("few_rows", text)
    dev, test = (split.rows.right for split in both.values())
    yield from few_of_a_kind(dev, " of the dev file", FITTED_ON_DEV)
    yield from few_of_a_kind(test, " of the test file")
    for fit in context.fitted.fits.values():
        yield from about_fit(fit)
