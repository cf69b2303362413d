"""The evidence map on the rows of a calibration, where every full row tells its log-probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration
from service.domain.jobs.model import MIN_USABLE_ROWS
from service.spectral.evidence import EvidenceMap, EvidenceSet
from service.spectral.evidence_fit import (
    EvidenceBootstrap,
    EvidenceFit,
    bootstrap_evidence,
    fit_evidence,
    held_out_evidence,
)
from service.spectral.evidence_subsets import fit_evidence_by_num_samples
from service.spectral.missing_mass import missing_mass
from service.spectral.risk import DevSet, risks
from service.spectral.subsets import OnDone

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceFound:
    """The fit on the full rows (n), its bootstrap, and what cross-validation says of it.

    missing_mass: (n,). risks, maps: out of fold, (n,) in nats and one map a fold, of "evidence", and of
    "active" where the active calibration is one by evidence.
    """

    missing_mass: Floats
    fit: EvidenceFit
    bootstrap: EvidenceBootstrap
    risks: Mapping[str, Floats]
    maps: Mapping[str, tuple[EvidenceMap, ...]]


def without_totals(material: Material) -> int:
    """Return how many of the full rows lack a log-probability."""
    if not material.totals:
        return int(material.full.size)
    return sum(material.totals[i] is None for i in material.full)


def why_no_evidence(material: Material) -> str | None:
    """Return why no evidence map can be fitted, as a sentence; None where it can."""
    lacking, full = without_totals(material), material.full.size
    if not lacking:
        return None
    return (
        f"{lacking} of {full} prompts have an answer without a log-probability of the whole of it: the "
        "evidence map needs one with every answer."
    )


def find_evidence(
    material: Material,
    dev: DevSet,
    fold: NDArray[np.int_],
    active: Calibration | None,
    rng: np.random.Generator,
    resamples: int,
) -> EvidenceFound | None:
    """Return the evidence map fitted on `dev`, the full rows; None where one lacks a log-probability.

    fold: (n,) which fold holds each prompt out, as for the other maps. An equally seeded rng draws the
    resamples of their bootstraps. Blocking: seconds.
    """
    missing = missing_masses(material)
    if missing is None:
        return None
    rows = EvidenceSet(dev, missing)
    out_of_fold, maps = held_out_evidence(rows, fold)
    found, by_name = {"evidence": out_of_fold}, {"evidence": maps}
    if rival := _of_active(active, material.num_samples):
        found["active"] = risks(rival.over(rows.missing_mass), dev)
        by_name["active"] = (rival,) * len(maps)
    spread = bootstrap_evidence(rows, rng=rng, resamples=resamples)
    return EvidenceFound(rows.missing_mass, fit_evidence(rows), spread, found, by_name)


def missing_masses(material: Material) -> Floats | None:
    """Return u (n,) of the full rows; None where one of them lacks a log-probability."""
    if without_totals(material):
        return None
    pairs = ((material.totals[i], material.answers[i].index) for i in material.full)
    return np.array([missing_mass(totals, index) for totals, index in pairs if totals is not None])


def _of_active(active: Calibration | None, num_samples: int) -> EvidenceMap | None:
    """Return what the active calibration serves so many answers with, its headline for more than it knows."""
    if active is None or not active.evidence:
        return None
    return active.evidence[min(num_samples, active.num_samples)]


def evidence_table(material: Material, seed: int, progress: OnDone | None) -> dict[int, EvidenceMap]:
    """Return the map of every number of answers from 1 to m, fitted on the rows with log-probabilities."""
    pairs = zip(material.answers, material.totals, strict=True)
    known = [(answers, totals) for answers, totals in pairs if totals is not None]
    found = fit_evidence_by_num_samples(
        (answers for answers, _ in known),
        (totals for _, totals in known),
        dimension=material.dimension,
        seed=seed,
        min_prompts=MIN_USABLE_ROWS,
        progress=progress,
    )
    return {m: map_ for m, map_ in found.items() if m <= material.num_samples}
