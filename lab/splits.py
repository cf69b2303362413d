"""Prompts with their spectra, and the scores that maps serve for them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.calibration.labels import LabelledRows
from service.spectral.spectrum import CalibrationMap, ServedSpectrum, spectrum_from_gram

Floats = NDArray[np.float64]


class Split:
    """n prompts that have all m answers.

    answers, counts, texts, spectra: one per prompt. c1: (n,) u_1^T Y u_1. Blocks for seconds with thousands
    of prompts.
    """

    def __init__(self, rows: LabelledRows) -> None:
        self.rows, self.material = rows, rows.material
        self.answers = [self.material.answers[i] for i in self.material.full]
        self.texts = [self.material.texts[i] for i in self.material.full]
        self.counts = [np.bincount(a.index, minlength=len(a.cosines)) for a in self.answers]
        pairs = zip(self.answers, self.counts, strict=True)
        self.spectra = [spectrum_from_gram(a.cosines, c, self.material.dimension) for a, c in pairs]
        # Only rounding puts values above 1, and diagrams reject those.
        self.c1: Floats = np.clip(rows.dev.alignment[:, 0], 0.0, 1.0)

    def __len__(self) -> int:
        return len(self.rows)

    def served(self, maps: Sequence[CalibrationMap], risks: Floats) -> "Served":
        """Return the scores that n maps serve, one map per prompt. risks: (n,), in nats."""
        pairs = zip(maps, self.spectra, strict=True)
        spectra = [map_.serve(raw.eigenvalues, raw.dimension) for map_, raw in pairs]
        # Only rounding puts values above 1, and diagrams reject those.
        largest = np.clip([served.lambda_max for served in spectra], 0.0, 1.0)
        return Served(spectra, largest, np.array([served.entropy for served in spectra]), risks)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """Scores that a map serves for n prompts.

    lambda_max, entropy (nats), risks on the references (nats): (n,).
    """

    spectra: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats
    risks: Floats
