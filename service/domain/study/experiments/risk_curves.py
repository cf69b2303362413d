"""Risk against temperature (the paper's map) and depolarisation g (ours), and what else is lowest there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.domain.study.bench import MAX_COSINES, Bench, serve
from service.domain.study.experiments.reliability import NO_CLUSTERS
from service.domain.study.model import Experiment, TableRow, finite, not_run, ran, unless_empty
from service.domain.study.verdict import claim
from service.spectral.algorithm1 import algorithm1, cluster_labels, cluster_prompts
from service.spectral.calibration_error import calibration_error
from service.spectral.fit import DepolarizedFit
from service.spectral.maps import CalibrationMap, DepolarizedMap, TemperatureMap
from service.spectral.risk import DevSet, mean_entropy, risk

Floats = NDArray[np.float64]

RISK_NAME, RISK_TITLE = "risk_and_entropy", "Risk and mean entropy against temperature"
TEMPERATURES = np.geomspace(0.05, 50.0, 61)  # from bound to bound of the fit
MASS_NAME, MASS_TITLE = "depolarized_map", "Depolarised map: risk against the depolarisation g"
# Short of the ends: at g = 0 a reference outside the span has infinite risk, g = 1 is no map.
MASSES = np.linspace(0.02, 0.98, 49)
CLAIM_NAME, CLAIM_TITLE = "co_minimised", "Cal_S, risk and eigenvalue ECE against temperature"
# Few: each has clusters of its own to find, and Cal_S over all prompts.
CLAIM_TEMPERATURES = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MEASURES = ("cal_s", "risk", "eigenvalue_ece")


def temperature(bench: Bench) -> Experiment:
    """Return both curves over a log grid of T, and the fit with its bootstrap interval."""
    dev, test, found = bench.dev.dev, bench.test.dev, bench.fits["temperature"]
    spread = bench.bootstraps["temperature"].temperature
    on_dev = _over_temperatures(dev, bench.eps)
    # Of one file alone both are the same: half the work of a report.
    on_test = on_dev if test is dev else _over_temperatures(test, bench.eps)
    points = [
        {
            "temperature": float(t),
            "dev_risk": of_dev[0],
            "dev_entropy": of_dev[1],
            "test_risk": of_test[0],
            "test_entropy": of_test[1],
        }
        for t, of_dev, of_test in zip(TEMPERATURES, on_dev, on_test, strict=True)
    ]
    headline: TableRow = {
        "temperature": found.map.temperature,
        "low": spread.low,
        "high": spread.high,
        "eps": bench.eps,
        "dev_risk": found.risk,
        "dev_entropy": found.mean_entropy,
        "test_risk": risk(found.map, test),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(RISK_NAME, RISK_TITLE, headline, points)


def _over_temperatures(dev: DevSet, eps: float) -> list[tuple[float, float]]:
    """Return risk and mean entropy at each temperature of the grid."""
    maps = [TemperatureMap(float(t), eps) for t in TEMPERATURES]
    return [(risk(m, dev), mean_entropy(m, dev)) for m in maps]


def depolarized(bench: Bench) -> Experiment:
    """Return the risk on both files over g, at the fitted temperature, and the fit with its intervals."""
    found, spread = bench.fits["depolarized"], bench.bootstraps["depolarized"]
    assert isinstance(found, DepolarizedFit)
    assert spread.depolarization is not None
    fitted = found.map
    maps = [DepolarizedMap(fitted.temperature, float(g)) for g in MASSES]
    points = [
        {
            "depolarization": m.depolarization,
            "dev_risk": risk(m, bench.dev.dev),
            "test_risk": risk(m, bench.test.dev),
        }
        for m in maps
    ]
    headline: TableRow = {
        "temperature": fitted.temperature,
        "temperature_low": spread.temperature.low,
        "temperature_high": spread.temperature.high,
        "depolarization": fitted.depolarization,
        "depolarization_low": spread.depolarization.low,
        "depolarization_high": spread.depolarization.high,
        "dev_risk": found.risk,
        "test_risk": risk(fitted, bench.test.dev),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(MASS_NAME, MASS_TITLE, headline, points)


def cominimised(bench: Bench) -> Experiment:
    """Return the three figures of the paper's map on test over temperatures, raw and min-max scaled."""
    cosines = bench.cosines
    if cosines is None:
        reason = f"Needs all pairs of prompts at once: at most {MAX_COSINES} test prompts."
        return not_run(CLAIM_NAME, CLAIM_TITLE, reason)
    # Of the unscaled matrices, and so the same at every temperature.
    labels = cluster_labels(cosines, NUM_CLUSTERS)
    found = np.array([_figures(bench, labels, cosines, float(t)) for t in CLAIM_TEMPERATURES])
    scaled = [_scaled(column) for column in found.T]
    points: list[TableRow] = []
    for i, t in enumerate(CLAIM_TEMPERATURES):
        values = {name: finite(found[i, j]) for j, name in enumerate(MEASURES)}
        unit = {f"{name}_scaled": finite(scaled[j][i]) for j, name in enumerate(MEASURES)}
        points.append({"temperature": float(t), **values, **unit})
    lowest: TableRow = {f"{m}_lowest_at": _lowest_at(found[:, j]) for j, m in enumerate(MEASURES)}
    fitted = bench.fits["temperature"].map.temperature
    cal_s_at, risk_at, ece_at = (_lowest_at(column) for column in found.T)
    headline = {**lowest, "fitted_temperature": fitted, **_by_map(bench, labels)}
    made = ran(CLAIM_NAME, CLAIM_TITLE, {**headline, "claim": claim(risk_at, ece_at, cal_s_at)}, points)
    return unless_empty(made, NO_CLUSTERS, "cal_s", "eigenvalue_ece")


def _figures(
    bench: Bench, labels: NDArray[np.intp], cosines: Floats, temperature: float
) -> tuple[float, float, float]:
    test, map_ = bench.test, TemperatureMap(temperature, bench.eps)
    same = [map_] * len(test)
    clusters = cluster_prompts(test.stack, serve("", map_, test).lambda_max, cosines=cosines)
    ece = algorithm1(clusters, test.targets).ece
    return _cal_s(bench, labels, same), risk(map_, test.dev), ece


def _cal_s(bench: Bench, labels: NDArray[np.intp], maps: Sequence[CalibrationMap]) -> float:
    test = bench.test
    pairs = zip(maps, test.spectra, strict=True)
    fitted = [map_.fitted(one.eigenvalues, one.dimension) for map_, one in pairs]
    return calibration_error(labels, test.stack, test.spectra, fitted, test.targets)


def _by_map(bench: Bench, labels: NDArray[np.intp]) -> TableRow:
    return {f"{name}_cal_s": _cal_s(bench, labels, bench.maps_of(name)) for name in bench.names}


def _lowest_at(values: Floats) -> float | None:
    """Return the temperature of the least value; None where no value is known (clusters of one prompt)."""
    return float(CLAIM_TEMPERATURES[np.nanargmin(values)]) if np.isfinite(values).any() else None


def _scaled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    # Times the values: what is unknown stays NaN, in a flat column, too.
    return np.asarray((values - known.min()) / span if span > 0 else np.zeros_like(values) * values)
