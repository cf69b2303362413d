"""The default calibration. It is served if no other fits, and fits on few labels are shrunk towards it.

It was fitted once on the recorded answers of a small LLM to 700 trivia questions (**ours**, method, section
9), by `python -m tools.default_calibration`; the results are packaged in this folder. It is not fitted to
your set-up: it was better than raw values in every trial, but only short answers of small LLMs were tried.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, Fingerprint
from service.embedding.port import EmbedderIdentity, Kernel
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import sigmoid
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior
from service.spectral.spectrum import DepolarizedMap

Floats = NDArray[np.float64]
DEFAULT_IDS: Mapping[Kernel, str] = {"facts": "default-2", "paper": "default-1"}
FOLDER = Path(__file__).parent
ROWS = FOLDER / "default-1.npz"  # both kernels have the same rows
MAX_EMBEDDERS = 8
PRIOR_WEIGHT = 30.0  # number of labelled rows that the default counts as (method, section 9)


def between(sizes: list[int], values: list[Any], num_samples: int) -> Floats:
    """Interpolate figures (K, ..) at K numbers of answers to `num_samples` answers, linearly in log m.

    Outside the range of `sizes` the nearest figures are returned.
    """
    at = np.interp(np.log(num_samples), np.log(sizes), np.arange(len(sizes)))
    below = min(int(at), len(sizes) - 2)
    table = np.asarray(values, dtype=np.float64)
    return np.asarray(table[below] + (at - below) * (table[below + 1] - table[below]))


class DefaultCalibration:
    """The figures, and the rows that they were fitted on without their texts.

    figures: `{id, created_at, maps: {method: {sizes, parameters, hessians}}}`, parameters of each map as
    fitted: (log T, a, b), (log T, logit g) or (log T). rows: `lengths` (n, m) in words, and `questions/…`
    (k, d), unit vectors times 127, by embedder name.
    """

    def __init__(self, figures: Mapping[str, Any], rows: Mapping[str, NDArray[Any]], kernel: Kernel) -> None:
        self._maps = figures["maps"]
        self._rows = rows
        sizes = range(1, self._maps["depolarized"]["sizes"][-1] + 1)
        fingerprint = Fingerprint("default", "", "", "", 0, kernel=kernel)
        self._calibration = Calibration(
            id=figures["id"],
            method="evidence",
            fingerprint=fingerprint,
            num_samples=sizes[-1],
            parameters={m: self._depolarized(m) for m in sizes[1:]},
            created_at=datetime.fromisoformat(figures["created_at"]),
            evidence={m: self._evidence(m) for m in sizes},
        )
        self.under = lru_cache(MAX_EMBEDDERS)(self._under)

    @property
    def kernel(self) -> Kernel:
        """Return what its rows' answers were compared by."""
        return self._calibration.fingerprint.kernel

    def compares(self, embedder: EmbedderIdentity) -> bool:
        """Tell whether questions can be compared with those of its rows: it has vectors of this embedder."""
        vectors = self._rows.get(f"questions/{embedder.name}")
        return vectors is not None and vectors.shape[1] == embedder.dimension

    def _under(self, embedder: EmbedderIdentity) -> Calibration:
        """Return the calibration for an embedder. Its reference has questions if `compares` is true."""
        questions = np.empty((0, embedder.dimension), dtype=np.float32)
        if self.compares(embedder):
            questions = self._rows[f"questions/{embedder.name}"].astype(np.float32)
            questions /= np.linalg.norm(questions, axis=1, keepdims=True)
        reference = ConformalReference(questions, self._rows["lengths"].astype(np.int32))
        return replace(self._calibration, reference=reference)

    def prior(self, method: str, num_samples: int, *, weight: float = PRIOR_WEIGHT) -> Prior | None:
        """Return the prior for a fit of the map for `num_samples` answers; None if `weight` is 0."""
        if weight == 0:
            return None
        center = self._at(method, "parameters", num_samples)
        return Prior(center, self._at(method, "hessians", num_samples), weight)

    def _at(self, method: str, name: str, num_samples: int) -> Floats:
        table = self._maps[method]
        return between(table["sizes"], table[name], num_samples)

    def _evidence(self, num_samples: int) -> EvidenceMap:
        log_t, a, b = self._at("evidence", "parameters", num_samples).tolist()
        return EvidenceMap(float(np.exp(log_t)), a, b)

    def _depolarized(self, num_samples: int) -> DepolarizedMap:
        log_t, logit_g = self._at("depolarized", "parameters", num_samples)
        return DepolarizedMap(float(np.exp(log_t)), float(sigmoid(logit_g)))


@cache
def packaged(kernel: Kernel) -> DefaultCalibration:
    """Return the default calibration of this release for a kernel."""
    with np.load(ROWS) as rows:
        return DefaultCalibration(json.loads(figures_file(kernel).read_text("utf-8")), dict(rows), kernel)


def figures_file(kernel: Kernel) -> Path:
    """Return the path of the packaged figures for a kernel."""
    return FOLDER / f"{DEFAULT_IDS[kernel]}.json"
