"""The evidence map as fitted on dev, and where on test it gains: risk by missing mass."""

import numpy as np

from service.domain.calibrating.evidence import why_no_evidence
from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, not_run, ran

NAME, TITLE = "evidence_map", "Evidence map: risk by missing mass"
BINS = 8  # of equal mass, as the reliability diagrams have


def evidence_map(bench: Bench) -> Experiment:
    """Return T, a and b with their intervals, and the test risk with and without evidence by missing mass.

    Not run, with the reason, where a prompt of either file lacks log-probabilities.
    """
    found, missing = bench.evidence, bench.test.missing_mass
    if found is None or missing is None:
        return not_run(NAME, TITLE, _reason(bench))
    with_it, without = bench.served["evidence"].risks, bench.served["depolarized"].risks
    g = found.fit.map.depolarizations(missing)
    points: list[TableRow] = [
        {
            "missing_mass": float(missing[rows].mean()),
            "count": int(rows.size),
            "depolarization": float(g[rows].mean()),
            "test_risk_evidence": float(with_it[rows].mean()),
            "test_risk_depolarized": float(without[rows].mean()),
        }
        # Stable: prompts of one missing mass (it is clipped) keep their order on every machine.
        for rows in np.array_split(np.argsort(missing, kind="stable"), min(BINS, missing.size))
    ]
    return ran(NAME, TITLE, _headline(bench), points)


def _headline(bench: Bench) -> TableRow:
    found = bench.evidence
    assert found is not None
    map_, spread = found.fit.map, found.bootstrap
    return {
        "temperature": map_.temperature,
        "temperature_low": spread.temperature.low,
        "temperature_high": spread.temperature.high,
        "intercept": map_.intercept,
        "intercept_low": spread.intercept.low,
        "intercept_high": spread.intercept.high,
        "slope": map_.slope,
        "slope_low": spread.slope.low,
        "slope_high": spread.slope.high,
        "dev_risk": found.fit.risk,
        "cv_risk": float(found.risks["evidence"].mean()),
        "cv_risk_depolarized": float(bench.held_out.risks["depolarized"].mean()),
        "test_risk": float(bench.served["evidence"].risks.mean()),
        "at_bound": ", ".join(found.fit.at_bound),
    }


def _reason(bench: Bench) -> str:
    told = (
        f"Of the {name} file, {why}"
        for name, split in (("dev", bench.dev), ("test", bench.test))
        if (why := why_no_evidence(split.material))
    )
    return " ".join(told)
