"""How much Algorithm 1 depends on its settings: bins B and clusters C."""

from service.domain.evaluation.bench import Bench
from service.domain.evaluation.model import Experiment, Row, ran, unless_empty
from service.domain.evaluation.reliability import GRID, NO_CLUSTERS, Readings
from service.domain.evidence import finite

NAME, TITLE = "sensitivity", "Sensitivity of Algorithm 1 to bins B and clusters C"


def sensitivity(bench: Bench, readings: Readings) -> Experiment:
    """Return the eigenvalue ECE and the bands of both nulls for every map and setting."""
    points: list[Row] = []
    for name in bench.served:
        for bins, clusters in GRID:
            one = readings.get(name, (bins, clusters))
            points.append(
                {
                    "map": name,
                    "bins": bins,
                    "clusters": clusters,
                    "ece": finite(one.diagram.ece),
                    "band_mean": finite(one.band.ece_mean),
                    "band_low": finite(one.band.ece_low),
                    "band_high": finite(one.band.ece_high),
                    "rescaled_low": finite(one.nulls.rescaled.band.ece_low),
                    "rescaled_high": finite(one.nulls.rescaled.band.ece_high),
                }
            )
    return unless_empty(ran(NAME, TITLE, _ranges(points), points), NO_CLUSTERS, "ece")


def _ranges(points: list[Row]) -> Row:
    headline: Row = {}
    for name in dict.fromkeys(str(p["map"]) for p in points):
        found = [p["ece"] for p in points if p["map"] == name]
        eces = [ece for ece in found if isinstance(ece, float)]
        headline[f"{name}_least"] = min(eces, default=None)
        headline[f"{name}_most"] = max(eces, default=None)
    return headline
