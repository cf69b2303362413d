"""A second embedding model beside the first: whether the conclusions hold."""

from collections.abc import Mapping

from service.domain.study.bench import Bench, Served
from service.domain.study.evidence import finite
from service.domain.study.experiments.correctness import auroc_row, one_class
from service.domain.study.model import Experiment, TableRow, not_run, ran
from service.spectral.algorithm1 import algorithm1, cluster_prompts, nulls
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.reliability import projection_brier, projection_reliability
from service.spectral.risk import risk

NAME, TITLE = "embedders", "Embedding models side by side"


def embedders(benches: Mapping[str, Bench]) -> Experiment:
    """Return the main figures by embedder and map; not run for one embedder alone."""
    if len(benches) < 2:
        return not_run(NAME, TITLE, "Only one embedder was given; give --embedder twice.")
    points = [
        {"embedder": name, **_row(bench, served)}
        for name, bench in benches.items()
        for served in bench.served.values()
    ]
    headline = {f"{p['embedder']}: {p['map']} projection ECE": p["projection_ece"] for p in points}
    return ran(NAME, TITLE, headline, points)


def _row(bench: Bench, served: Served) -> TableRow:
    test = bench.test
    clusters = cluster_prompts(test.stack, served.lambda_max, cosines=bench.cosines)
    [both] = nulls([clusters], test.stack, test.spectra, served.spectra, test.targets, bench.rng(4))
    drawn, rescaled = both.drawn.band, both.rescaled.band
    auroc: TableRow = {} if one_class(bench) else auroc_row(served.lambda_max, bench)
    return {
        "map": served.name,
        "temperature": _temperature(served),
        "depolarization": served.map.depolarization if isinstance(served.map, DepolarizedMap) else None,
        "test_risk": risk(served.map, test.dev),
        "projection_ece": projection_reliability(served.lambda_max, test.c1).ece,
        "projection_brier": projection_brier(served.lambda_max, test.c1),
        "algorithm1_ece": finite(algorithm1(clusters, test.targets).ece),
        "algorithm1_band_low": finite(drawn.ece_low),
        "algorithm1_band_high": finite(drawn.ece_high),
        "algorithm1_rescaled_low": finite(rescaled.ece_low),
        "algorithm1_rescaled_high": finite(rescaled.ece_high),
        "mean_lambda_max": float(served.lambda_max.mean()),
        "auroc": auroc.get("auroc"),
        "auroc_low": auroc.get("low"),
        "auroc_high": auroc.get("high"),
    }


def _temperature(served: Served) -> float | None:
    return served.map.temperature if isinstance(served.map, DepolarizedMap | TemperatureMap) else None
