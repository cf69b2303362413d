"""One file of an evaluation as arrays, prepared once for all experiments."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.labels import Labels, label
from service.domain.calibrating.material import Material
from service.domain.study.model import SplitPart
from service.spectral.batch import Answers, dev_set
from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum, spectrum
from service.spectral.risk import DevSet

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """n prompts that have all m answers.

    answers, counts, texts, spectra: one per prompt; stack: their density matrices; targets: those of the
    references; dev: spectra and alignments for risks; c1: (n,) u_1^T Y u_1; labels: right or wrong.
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

    def __len__(self) -> int:
        return len(self.answers)


def make_split(material: Material) -> Split:
    """Return the split of the full rows. Blocking: seconds for thousands of prompts."""
    chosen = [material.answers[i] for i in material.full]
    counts = [np.bincount(a.index, minlength=len(a.vectors)) for a in chosen]
    dev = dev_set(chosen, material.dimension)
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
        np.clip(dev.alignment[:, 0], 0.0, 1.0),
        label(material),
    )


def describe(split: Split, num_rows: int, answers_in_file: int) -> SplitPart:
    """Return what a report says of the file; answers_in_file: per prompt, before they were cut to m."""
    return {
        "rows": num_rows,
        "used": len(split),
        "answers_in_file": answers_in_file,
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.labels.source,
        "accuracy": float(split.labels.right.mean()),
    }
