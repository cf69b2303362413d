"""A file as arrays, prepared once for all experiments: spectra, targets, who is right, what a map serves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.evidence import missing_masses
from service.domain.calibrating.judged import Labels, label
from service.domain.calibrating.material import Material
from service.domain.study.model import SplitPart
from service.spectral.batch import Answers, dev_set
from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum, spectrum
from service.spectral.maps import ServedSpectrum
from service.spectral.risk import DevSet

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """n prompts that have all m answers.

    answers, counts, texts, spectra: one per prompt; stack: their density matrices; targets: those of the
    references; dev: spectra and alignments for risks; c1: (n,) u_1^T Y u_1; labels: right or wrong;
    missing_mass: (n,) u of the answers, None unless every prompt has log-probabilities.
    """

    material: Material
    answers: Sequence[Answers]
    counts: Sequence[NDArray[np.int_]]
    texts: Sequence[Sequence[str]]
    spectra: Sequence[Spectrum]
    stack: DensityStack
    targets: DensityStack
    dev: DevSet
    c1: Floats
    labels: Labels
    missing_mass: Floats | None

    def __len__(self) -> int:
        return len(self.answers)


def make_split(material: Material, dev: DevSet | None = None) -> Split:
    """Return the split of the full rows. dev: of them, where it is known. Blocking: seconds for thousands."""
    chosen = [material.answers[i] for i in material.full]
    counts = [np.bincount(a.index, minlength=len(a.vectors)) for a in chosen]
    dev = dev or dev_set(chosen, material.dimension)
    pairs = zip(chosen, counts, strict=True)
    return Split(
        material,
        chosen,
        counts,
        [material.texts[i] for i in material.full],
        [spectrum(a.vectors, c, dimension=material.dimension) for a, c in pairs],
        DensityStack.of([a.vectors for a in chosen], counts),
        DensityStack.of([a.references for a in chosen]),
        dev,
        np.clip(dev.alignment[:, 0], 0.0, 1.0),  # above 1 by rounding only, which a diagram refuses
        label(material),
        missing_masses(material),
    )


def describe(split: Split, num_rows: int, answers_in_file: int) -> SplitPart:
    """Return what an evaluation says of the file; answers_in_file: per prompt, before they were cut to m."""
    return {
        "rows": num_rows,
        "used": len(split),
        "answers_in_file": answers_in_file,
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.labels.source,
        "accuracy": float(split.labels.right.mean()),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The n prompts of a split as a map serves them. lambda_max, entropy (nats), risks (nats): (n,)."""

    name: str
    spectra: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats
    risks: Floats


def served(name: str, spectra: Sequence[ServedSpectrum], risks: Floats) -> Served:
    """Return what is served, and what it costs on the references."""
    # Above 1 by rounding only, which a diagram refuses.
    largest = np.clip([one.lambda_max for one in spectra], 0.0, 1.0)
    return Served(name, spectra, largest, np.array([one.entropy for one in spectra]), risks)
