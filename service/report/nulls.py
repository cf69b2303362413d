"""What an ECE is held against, in words: the same for both pages. An ECE counts by its null alone."""

from collections.abc import Sequence

import numpy as np

from service.domain.study.report_model import Band, Bin, NullPart, ServedRow
from service.report.words import MAPS, between, count, number

LEVEL = 0.05


def known_band(bins: Sequence[Bin]) -> list[Bin]:
    """Return the bins whose band is known; reports of earlier releases have none."""
    return [one for one in bins if one.get("band_low") is not None and one.get("band_high") is not None]


def p_words(p_value: float | None) -> str:
    """Return "p = 0.042" on one line; "p unknown" for None. With D draws it is 1 / (1 + D) at least."""
    return "p unknown" if p_value is None else f"p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{number(p_value)}"


def judged(p_value: float | None) -> str:
    """Return what a p-value shows of a map, as a predicate. A large one is no proof of calibration."""
    if p_value is None:
        return "cannot be judged"
    return "is not calibrated" if p_value <= LEVEL else "cannot be told from calibrated"


def projection_words(row: ServedRow) -> str:
    """Return the projection ECE of a map beside its residual null, as a sentence."""
    said = f"{MAPS[row['map']]}: {number(row['projection_ece'])}"
    null = row.get("projection_null")
    if null is None:
        return f"{said}. What calibrated scores would read was not kept with this report."
    return (
        f"{said}; calibrated scores would read {_around(null)}; {p_words(null['p_value'])}: "
        f"it {judged(null['p_value'])}."
    )


def algorithm1_words(row: ServedRow) -> str:
    """Return Algorithm 1's ECE of a map beside both nulls, with its clusters, as sentences."""
    said = f"{MAPS[row['map']]}: {number(row['algorithm1_ece'])}"
    drawn, rescaled = row.get("algorithm1_drawn"), row.get("algorithm1_rescaled")
    if drawn is None or rescaled is None:
        return f"{said}; (a) {_around(row['algorithm1_band'])}; (b) was not kept with this report."
    return f"{said}; (a) {_with_p(drawn)}; (b) {_with_p(rescaled)}. {cluster_words(row)}".rstrip()


def cluster_words(row: ServedRow) -> str:
    """Return how many prompts Algorithm 1 ignored, and the sizes of its clusters; "" where not known."""
    sizes, alone = row.get("cluster_sizes"), row.get("singletons")
    if sizes is None or alone is None:
        return ""
    left_out = f"{count(alone, 'prompt')} alone in {'its' if alone == 1 else 'their'} cluster and ignored"
    if not sizes:
        return f"No cluster has two members: {left_out}."
    spread = f"{min(sizes)} to {max(sizes)} prompts, median {np.median(sizes):g}"
    return f"{count(len(sizes), 'cluster')} of {spread}; {left_out}."


def _with_p(null: NullPart) -> str:
    return f"{_around(null)}, {p_words(null['p_value'])}"


def _around(band: Band | NullPart) -> str:
    return f"{number(band['mean'])} on average ({between(band) or 'band unknown'})"
