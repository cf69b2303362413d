"""The default calibration: what serves where no other fits, and what fits on few labels are drawn to.

Fitted once on the recorded answers of a small LLM to 700 trivia questions (**ours**, method, section 9), by
`python -m tools.default_calibration`; what it found is packaged beside this file. It is a calibration of no
set-up of yours: better than raw values wherever it was tried, and tried on short answers of small LLMs alone.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, Fingerprint
from service.embedding.port import EmbedderIdentity, Kernel
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import Columns, CorrectnessModel, ModelPrior, sigmoid
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior
from service.spectral.spectrum import DepolarizedMap

Floats = NDArray[np.float64]
DEFAULT_IDS: Mapping[Kernel, str] = {"facts": "default-2", "paper": "default-1"}
FOLDER = Path(__file__).parent
ROWS = FOLDER / "default-1.npz"  # of both: the rows are the same
DIMENSION = 768  # of the embedder whose vectors it was fitted on
ALONE = "answer"  # in place of a map, where no answer is drawn
PRIOR_WEIGHT = 30.0  # labelled rows that the default counts for (method, section 9)
# Answers that the default of claims counts for: composed ones are a poor guide to real ones. Of ten real
# answers, P(correct) drawn to 30 cost .10 to .14 nats more than one of the rows alone, drawn to 3 .00 to .01
# less, and less by .04 to .08 in the worst of twenty draws.
CLAIM_PRIOR_WEIGHT = 3.0
# A verdict says less than a reference: of P(correct) the default's weights count for 100 rows, where the
# maps count for 30, and its intercept for 10.
MODEL_SHARE = 100 / 30


def between(sizes: list[int], values: list[Any], num_samples: int) -> Floats:
    """Return figures (..,) for m answers from those of some m (K, ..): linear in log m, the last beyond.

    Those of one m alone are the same for every m.
    """
    if len(sizes) == 1:
        return np.array(values[0], dtype=np.float64)
    at = np.interp(np.log(num_samples), np.log(sizes), np.arange(len(sizes)))
    below = min(int(at), len(sizes) - 2)
    table = np.asarray(values, dtype=np.float64)
    return np.asarray(table[below] + (at - below) * (table[below + 1] - table[below]))


class DefaultCalibration:
    """The figures, and the rows that they were fitted on, as far as they are needed: no text of theirs.

    figures: `{id, created_at, maps: {method: {sizes, parameters, hessians}}, correctness: {method: [..]}}`,
    parameters of each map as it is fitted: (log T, a, b), (log T, logit g) or (log T). correctness: models
    of P(correct) `{features, sizes, means, scales, lows, highs, parameters, hessians}`, more features each,
    by method, and `ALONE` for 0 answers; their parameters are weights and, last, the intercept. rows:
    `lengths` (n, m) in words, and `questions/…` (k, d), unit vectors times 127, by name of their embedder;
    those of claims have none, nor a map by evidence.
    """

    def __init__(self, figures: Mapping[str, Any], rows: Mapping[str, NDArray[Any]]) -> None:
        self._maps = figures["maps"]
        self._models = figures["correctness"]
        self._rows = rows
        by_evidence = "evidence" in self._maps
        sizes = range(1, self._maps["depolarized"]["sizes"][-1] + 1)
        fingerprint = Fingerprint("default", "", "", "", 0)
        self._calibration = Calibration(
            id=figures["id"],
            method="evidence" if by_evidence else "depolarized",
            fingerprint=fingerprint,
            num_samples=sizes[-1],
            parameters={m: self._depolarized(m) for m in sizes[1:]},
            created_at=datetime.fromisoformat(figures["created_at"]),
            evidence={m: self._evidence(m) for m in sizes} if by_evidence else {},
        )
        self.under = cache(self._under)
        self._model = cache(self._interpolated)

    def compares(self, embedder: EmbedderIdentity) -> bool:
        """Tell whether questions can be compared with those of its rows: it has vectors of this embedder."""
        vectors = self._rows.get(f"questions/{embedder.name}")
        return vectors is not None and vectors.shape[1] == embedder.dimension

    def _under(self, embedder: EmbedderIdentity) -> Calibration:
        """Return the calibration; its reference compares questions where it `compares`."""
        if not self._rows:
            return self._calibration
        questions = np.empty((0, embedder.dimension), dtype=np.float32)
        if self.compares(embedder):
            questions = self._rows[f"questions/{embedder.name}"].astype(np.float32)
            questions /= np.linalg.norm(questions, axis=1, keepdims=True)
        reference = ConformalReference(questions, self._rows["lengths"].astype(np.int32))
        return replace(self._calibration, reference=reference)

    def prior(self, method: str, num_samples: int, *, weight: float = PRIOR_WEIGHT) -> Prior | None:
        """Return what a fit of the map for so many answers is drawn to; None for no weight."""
        if weight == 0:
            return None
        center = self._at(method, "parameters", num_samples)
        return Prior(center, self._at(method, "hessians", num_samples), weight)

    def model_prior(
        self,
        method: str,
        num_samples: int,
        columns: Columns,
        *,
        dimension: int = DIMENSION,
        weight: float = PRIOR_WEIGHT,
    ) -> ModelPrior | None:
        """Return what a fit of P(correct) is drawn to, with every feature of the columns.

        None for no weight, and for claims to which no answer is drawn: of those it knows nothing.
        num_samples: from 0. dimension: of the embedder. weight: labelled rows that count for the map's.
        """
        if weight == 0 or (num_samples == 0 and ALONE not in self._models):
            return None
        model, hessian = self._model(method, num_samples, frozenset(columns), dimension)
        return ModelPrior(model, hessian, MODEL_SHARE * weight)

    def rank(self, method: str, num_samples: int, columns: Columns, dimension: int) -> Floats:
        """Return what to sort texts by (n,), in (0, 1): higher = more likely right. It is no probability.

        num_samples: from 0. dimension: of the embedder.
        """
        return self._model(method, num_samples, frozenset(columns), dimension)[0].predict(columns)

    def _interpolated(
        self, method: str, num_samples: int, known: frozenset[str], dimension: int
    ) -> tuple[CorrectnessModel, Floats]:
        tables = self._models[method if num_samples else ALONE]
        table = [one for one in tables if known >= set(one["features"])][-1]
        names = ("means", "scales", "lows", "highs", "parameters", "hessians")
        figures = {name: between(table["sizes"], table[name], num_samples) for name in names}
        if "entropy" in table["features"]:
            # Of the served mass the part that is noise, g, is spread over all dimensions: g log d nats.
            named = dict(zip(table["features"], figures["means"].tolist(), strict=True))
            noise = self._noise(method, num_samples, named.get("logit_missing_mass"))
            for name in ("means", "lows", "highs"):
                figures[name][table["features"].index("entropy")] += noise * np.log(dimension / DIMENSION)
        *weights, intercept = figures.pop("parameters").tolist()
        hessian = figures.pop("hessians")
        rest = {name: tuple(values.tolist()) for name, values in figures.items()}
        model = CorrectnessModel(
            tuple(table["features"]), weights=tuple(weights), intercept=intercept, **rest
        )
        return model, hessian

    def _noise(self, method: str, num_samples: int, logit_mass: float | None) -> float:
        """Return the depolarization g of the map, by evidence that of a prompt of this logit u."""
        if method == "evidence" and logit_mass is not None:
            return self._evidence(num_samples).at(float(sigmoid(logit_mass))).depolarization
        return self._depolarized(num_samples).depolarization if method == "depolarized" else 0.0

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
def packaged_for_claims() -> DefaultCalibration:
    """Return the default calibration of claims of this release; it knows nothing of its rows' prompts."""
    figures = json.loads(figures_file("paper").read_text("utf-8"))
    named = {name: figures[name] for name in ("id", "created_at")}
    return DefaultCalibration(named | figures["claims"], {})


@cache
def packaged(kernel: Kernel) -> DefaultCalibration:
    """Return the default calibration of this release for a kernel."""
    with np.load(ROWS) as rows:
        return DefaultCalibration(json.loads(figures_file(kernel).read_text("utf-8")), dict(rows))


def figures_file(kernel: Kernel) -> Path:
    """Return the file of the figures that are packaged for a kernel."""
    return FOLDER / f"{DEFAULT_IDS[kernel]}.json"
