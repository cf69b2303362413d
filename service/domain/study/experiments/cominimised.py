"""Whether calibration error, risk and eigenvalue ECE are lowest at the same temperature."""

import numpy as np
from numpy.typing import NDArray

from service.domain.study.bench import MAX_COSINES, Bench, serve
from service.domain.study.evidence import finite
from service.domain.study.experiments.reliability import NO_CLUSTERS
from service.domain.study.model import Experiment, TableRow, not_run, ran, unless_empty
from service.domain.study.verdict import claim
from service.spectral.algorithm1 import algorithm1, cluster_labels, cluster_prompts
from service.spectral.calibration_error import calibration_error
from service.spectral.maps import CalibrationMap, TemperatureMap
from service.spectral.risk import risk

Floats = NDArray[np.float64]
NAME, TITLE = "co_minimised", "Cal_S, risk and eigenvalue ECE against temperature"
GRID = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30
MEASURES = ("cal_s", "risk", "eigenvalue_ece")


def cominimised(bench: Bench) -> Experiment:
    """Return the three figures of the paper's map on test over temperatures, raw and min-max scaled."""
    cosines = bench.cosines
    if cosines is None:
        return not_run(
            NAME, TITLE, f"Needs all pairs of prompts at once: at most {MAX_COSINES} test prompts."
        )
    labels = cluster_labels(cosines, NUM_CLUSTERS)
    found = np.array([_figures(bench, labels, cosines, float(t)) for t in GRID])
    scaled = [_scaled(column) for column in found.T]
    points: list[TableRow] = []
    for i, t in enumerate(GRID):
        values = {name: finite(found[i, j]) for j, name in enumerate(MEASURES)}
        unit = {f"{name}_scaled": finite(scaled[j][i]) for j, name in enumerate(MEASURES)}
        points.append({"temperature": float(t), **values, **unit})
    lowest: TableRow = {f"{m}_lowest_at": _lowest_at(found[:, j]) for j, m in enumerate(MEASURES)}
    fitted = bench.fits["temperature"].map.temperature
    cal_s_at, risk_at, ece_at = (_lowest_at(column) for column in found.T)
    headline = {**lowest, "fitted_temperature": fitted, **_by_map(bench, labels)}
    made = ran(NAME, TITLE, {**headline, "claim": claim(risk_at, ece_at, cal_s_at)}, points)
    return unless_empty(made, NO_CLUSTERS, "cal_s", "eigenvalue_ece")


def _figures(
    bench: Bench, labels: NDArray[np.intp], cosines: Floats, temperature: float
) -> tuple[float, float, float]:
    test, map_ = bench.test, TemperatureMap(temperature, bench.eps)
    clusters = cluster_prompts(test.stack, serve("", map_, test).lambda_max, cosines=cosines)
    ece = algorithm1(clusters, test.targets).ece
    return _cal_s(bench, labels, map_), risk(map_, test.dev), ece


def _cal_s(bench: Bench, labels: NDArray[np.intp], map_: CalibrationMap) -> float:
    test = bench.test
    fitted = [map_.fitted(one.eigenvalues, one.dimension) for one in test.spectra]
    return calibration_error(labels, test.stack, test.spectra, fitted, test.targets)


def _by_map(bench: Bench, labels: NDArray[np.intp]) -> TableRow:
    return {f"{name}_cal_s": _cal_s(bench, labels, map_) for name, map_ in bench.maps.items()}


def _lowest_at(values: Floats) -> float | None:
    """Return the temperature of the least value; None where no value is known (clusters of one prompt)."""
    return float(GRID[np.nanargmin(values)]) if np.isfinite(values).any() else None


def _scaled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    return np.asarray((values - known.min()) / span if span > 0 else np.zeros_like(values) * values)
