"""All figures of a map in a row: the maps of a study side by side, and those of several embedding models."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from service.domain.study.bench import Bench
from service.domain.study.experiments.correctness import interval_of_auroc
from service.domain.study.model import Experiment, TableRow, estimate, finite, not_run, ran
from service.domain.study.report_model import Band, Estimate, NullPart, ServedRow
from service.spectral.correctness import accuracy_rejection
from service.spectral.evidence import EvidenceMap
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.reliability import ConsistencyBand
from service.spectral.residual_null import Null

Floats = NDArray[np.float64]
NAME, TITLE = "embedders", "Embedding models side by side"


def side_by_side(bench: Bench) -> list[ServedRow]:
    """Return a row per map, raw first: every figure with its null or its interval."""
    return [_row(bench, name) for name in bench.served]


def _row(bench: Bench, name: str) -> ServedRow:
    served, projection, paper = bench.served[name], bench.projection[name], bench.algorithm1(name)
    return {
        "map": name,
        "risk": float(served.risks.mean()),
        "projection_ece": projection.diagram.ece,
        "projection_brier": projection.brier,
        "algorithm1_ece": finite(paper.diagram.ece),
        "algorithm1_band": _band(paper.nulls.drawn.band),
        "auroc_lambda_max": _auroc(served.lambda_max, bench),
        "auroc_entropy": _auroc(-served.entropy, bench),
        "rejection_area": finite(accuracy_rejection(served.lambda_max, bench.test.labels.right).area),
        "mean_lambda_max": float(served.lambda_max.mean()),
        "mean_entropy": float(served.entropy.mean()),
        "projection_null": _null(projection.null),
        "algorithm1_drawn": _null(paper.nulls.drawn),
        "algorithm1_rescaled": _null(paper.nulls.rescaled),
        "cluster_sizes": paper.clusters.cluster_sizes.tolist(),
        "singletons": paper.clusters.singletons,
    }


def embedders(benches: Mapping[str, Bench]) -> Experiment:
    """Return the main figures by embedder and map; not run for one embedder alone."""
    if len(benches) < 2:
        return not_run(NAME, TITLE, "Only one embedder was given; give --embedder twice.")
    points: list[TableRow] = [
        {"embedder": name, "map": row["map"], **_parameters(bench, row["map"]), **_columns(row)}
        for name, bench in benches.items()
        for row in side_by_side(bench)
    ]
    headline = {f"{p['embedder']}: {p['map']} projection ECE": p["projection_ece"] for p in points}
    return ran(NAME, TITLE, headline, points)


def _parameters(bench: Bench, name: str) -> TableRow:
    map_ = bench.evidence.fit.map if name == "evidence" and bench.evidence else bench.maps[name]
    with_temperature = DepolarizedMap | TemperatureMap | EvidenceMap
    return {
        "temperature": map_.temperature if isinstance(map_, with_temperature) else None,
        "depolarization": map_.depolarization if isinstance(map_, DepolarizedMap) else None,
        "intercept": map_.intercept if isinstance(map_, EvidenceMap) else None,
        "slope": map_.slope if isinstance(map_, EvidenceMap) else None,
    }


def _columns(row: ServedRow) -> TableRow:
    projection, drawn, rescaled = (
        row["projection_null"],
        row["algorithm1_drawn"],
        row["algorithm1_rescaled"],
    )
    auroc = row["auroc_lambda_max"]
    return {
        "test_risk": row["risk"],
        "projection_ece": row["projection_ece"],
        "projection_band_low": projection["low"],
        "projection_band_high": projection["high"],
        "projection_p_value": projection["p_value"],
        "projection_brier": row["projection_brier"],
        "algorithm1_ece": row["algorithm1_ece"],
        "algorithm1_band_low": drawn["low"],
        "algorithm1_band_high": drawn["high"],
        "algorithm1_rescaled_low": rescaled["low"],
        "algorithm1_rescaled_high": rescaled["high"],
        "mean_lambda_max": row["mean_lambda_max"],
        "auroc": auroc["value"],
        "auroc_low": auroc["low"],
        "auroc_high": auroc["high"],
    }


def _auroc(scores: Floats, bench: Bench) -> Estimate:
    found = interval_of_auroc(scores, bench)
    return estimate(found.value, found.low, found.high)


def _band(band: ConsistencyBand) -> Band:
    return {"mean": finite(band.ece_mean), "low": finite(band.ece_low), "high": finite(band.ece_high)}


def _null(null: Null) -> NullPart:
    return {**_band(null.band), "p_value": finite(null.p_value), "draws": null.band.num_draws}
