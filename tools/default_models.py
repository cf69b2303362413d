"""The models of P(correct) in the default calibration, for `tools.default_calibration`.

Fitted as a calibration's are, on the verdicts of the recorded rows' `answer` under the default maps, for the
first m answers of each row. Answers without a recorded vector (one in twelve) are embedded. For no answer
drawn the text judged is the first draw, as where rows have no `answer`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.calibration import WITHOUT_EVIDENCE, answer_features
from service.calibration.default import ALONE
from service.calibration.labels import FullRows
from service.calibration.material import all_texts, assemble
from service.calibration.rows import DevRow
from service.claims.verdicts import correct
from service.embedding.port import PAPER, Kernel
from service.llm.port import Draw
from service.spectral.correctness_model import (
    FEATURES,
    FEATURES_ALONE,
    Columns,
    ModelPrior,
    fit_model,
    model_prior,
    sigmoid,
)
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

WITHOUT_EVIDENCE_FEATURES = tuple(name for name in FEATURES if name in WITHOUT_EVIDENCE)
DIGITS = 6  # significant ones packaged


class JudgedRows:
    """The rows of some recorded sets as a calibration has them, with their first `num_samples` answers."""

    def __init__(
        self,
        names: Sequence[str],
        data: Path,
        weights: Path,
        num_samples: int,
        kernel: Kernel = PAPER,
    ) -> None:
        stored, _, known = recorded_rows(names, data, num_samples, kernel, weights)
        texts = list(known)
        place = {text: i for i, text in enumerate(texts)}
        vectors = np.stack([known[text] for text in texts])
        self.rows = FullRows(assemble(stored, num_samples, vectors, place, vectors.shape[1], kernel))
        self._stored = stored

    def alone(self) -> tuple[Columns, Any]:
        """Return the feature (n,) of the first draws, judged by themselves, and the verdicts on them (n,)."""
        firsts = [one.draws[0] for one in self._stored]
        totals = np.array([one.total_logprob for one in firsts], dtype=np.float64)
        columns = answer_features(totals, [one.text for one in firsts])
        pairs = zip(firsts, self._stored, strict=True)
        return columns, np.array([correct(one.text, row.references) for one, row in pairs])

    def columns(self, map_: EvidenceMap | DepolarizedMap | TemperatureMap, m: int) -> tuple[Columns, Any]:
        """Return the features (n,) of the first m answers under a map, and the verdicts (n,)."""
        judged = self.rows.at(m)
        return judged.columns(map_), judged.right


def recorded_rows(
    names: Sequence[str],
    data: Path,
    num_samples: int,
    kernel: Kernel,
    weights: Path,
    *,
    judged: bool = True,
) -> tuple[list[DevRow], list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return the rows of some sets as a calibration has them and as recorded, and the vector of each text.

    judged: with the `answer` of each row, which has no recorded vector.
    """
    known: dict[str, np.ndarray] = {}
    stored, recorded = list[DevRow](), list[dict[str, Any]]()
    for name in names:
        lines = [json.loads(line) for line in (data / f"{name}.jsonl").read_text("utf-8").splitlines()]
        with np.load(data / f"{name}.npz") as arrays:
            vectors, drawn, references = (arrays[key] for key in ("emb", "S", "Y"))
        for row, places, reference in zip(lines, drawn, references, strict=True):
            known |= dict(zip(row["samples"], vectors[places], strict=True))
            known[row["reference"]] = vectors[reference]
        stored += [_stored(i, row, num_samples) for i, row in enumerate(lines, start=1)]
        recorded += lines
    if not judged:
        stored = [replace(row, answer=None) for row in stored]
    texts = all_texts(stored, kernel)
    if missing := [text for text in texts if text not in known]:
        known |= embedded(missing, weights)
    return stored, recorded, {text: known[text] for text in texts}


def _stored(line: int, row: Mapping[str, Any], num_samples: int) -> DevRow:
    pairs = zip(row["samples"][:num_samples], row["logprob"][:num_samples], strict=True)
    draws = tuple(Draw(text, total_logprob=total) for text, total in pairs)
    dev = DevRow(line, None, (row["reference"],), prompt=row["prompt"], answer=row["answer"])
    return replace(dev, draws=draws, complete=True)


def embedded(texts: Sequence[str], weights: Path) -> dict[str, np.ndarray]:
    """Return the vector (d,) of each text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(weights / "all-mpnet-base-v2"), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


def models(
    maps: Mapping[str, Mapping[str, Any]], every: JudgedRows, first: JudgedRows
) -> dict[str, list[dict[str, Any]]]:
    """Return for each method a model without log-probabilities, unless it is by evidence, and one with them.

    Beside them, under `ALONE`, the model for no answer drawn.

    maps: parameters by method, as they are packaged. every: all rows. first: those with answers for the last
    number of answers, too; there the fit on them is drawn to that of the number before, which counts for the
    others.
    """
    columns, right = every.alone()
    alone = [model_prior(columns, right, FEATURES_ALONE, float(right.size))]
    return {
        **{method: _of_method(method, table, every, first) for method, table in maps.items()},
        ALONE: [model_table(FEATURES_ALONE, [0], alone)],
    }


def _of_method(
    method: str, table: Mapping[str, Any], every: JudgedRows, first: JudgedRows
) -> list[dict[str, Any]]:
    sets = [FEATURES] if method == "evidence" else [WITHOUT_EVIDENCE_FEATURES, FEATURES]
    return [_of_features(method, features, table, every, first) for features in sets]


def _of_features(
    method: str, features: tuple[str, ...], table: Mapping[str, Any], every: JudgedRows, first: JudgedRows
) -> dict[str, Any]:
    fitted: list[ModelPrior] = []
    for m, parameters in zip(table["sizes"][:-1], table["parameters"][:-1], strict=True):
        columns, right = every.columns(_map(method, parameters), m)
        others = float(right.size)
        fitted.append(model_prior(columns, right, features, others))
    columns, right = first.columns(_map(method, table["parameters"][-1]), table["sizes"][-1])
    drawn = replace(fitted[-1], weight=others - right.size)
    model = fit_model(columns, right, features, prior=drawn)
    fitted.append(ModelPrior(model, drawn.hessian, others))
    return model_table(features, table["sizes"], fitted)


def model_table(features: tuple[str, ...], sizes: list[int], fitted: Sequence[ModelPrior]) -> dict[str, Any]:
    """Return models by number of answers as they are packaged."""
    return {
        "features": list(features),
        "sizes": sizes,
        "means": _rounded([one.model.means for one in fitted]),
        "scales": _rounded([one.model.scales for one in fitted]),
        "lows": _rounded([one.model.lows for one in fitted]),
        "highs": _rounded([one.model.highs for one in fitted]),
        "parameters": _rounded([(*one.model.weights, one.model.intercept) for one in fitted]),
        "hessians": _rounded([one.hessian for one in fitted]),
    }


def _rounded(values: Any) -> Any:
    table = np.asarray(values, dtype=np.float64)
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"))(table).tolist()


def _map(method: str, parameters: Sequence[float]) -> EvidenceMap | DepolarizedMap | TemperatureMap:
    temperature = float(np.exp(parameters[0]))
    if method == "evidence":
        return EvidenceMap(temperature, parameters[1], parameters[2])
    if method == "temperature":
        return TemperatureMap(temperature)
    return DepolarizedMap(temperature, float(sigmoid(parameters[1])))
