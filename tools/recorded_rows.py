"""Recorded data sets as rows of a calibration, for tests of figures.

Texts without a recorded vector are embedded: one in twelve of SmolLM2's answers, and all of Qwen's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.labels import LabelledRows
from service.calibration.material import all_texts, assemble
from service.calibration.rows import DevRow
from service.embedding.port import PAPER, Kernel
from service.llm.samples import Draw
from service.spectral.correctness_model import Columns
from service.spectral.dev_set import AnyMap


class JudgedRows:
    """The rows of some recorded sets as rows of a calibration, with their first `num_samples` answers."""

    def __init__(
        self,
        names: Sequence[str],
        data: Path,
        weights: Path,
        num_samples: int,
        kernel: Kernel = PAPER,
        *,
        judged: bool = True,
    ) -> None:
        stored, _, vector_by_text = recorded_rows(names, data, num_samples, kernel, weights, judged=judged)
        texts = list(vector_by_text)
        place = {text: i for i, text in enumerate(texts)}
        vectors = np.stack([vector_by_text[text] for text in texts])
        self.rows = LabelledRows(assemble(stored, num_samples, vectors, place, vectors.shape[1], kernel))

    def columns(self, map_: AnyMap, m: int) -> tuple[Columns, Any]:
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
    """Return the rows of some sets as `DevRow`s and as recorded, and the vector of each text.

    judged: keep the `answer` of each row.
    """
    vector_by_text: dict[str, np.ndarray] = {}
    stored, recorded = list[DevRow](), list[dict[str, Any]]()
    for name in names:
        lines = [json.loads(line) for line in (data / f"{name}.jsonl").read_text("utf-8").splitlines()]
        vector_by_text |= _recorded_vectors(data / f"{name}.npz", lines)
        stored += [_stored(i, row, num_samples) for i, row in enumerate(lines, start=1)]
        recorded += lines
    if not judged:
        stored = [replace(row, answer=None, answer_logprob=None) for row in stored]
    texts = all_texts(stored, kernel)
    if missing := [text for text in texts if text not in vector_by_text]:
        vector_by_text |= embedded(missing, weights)
    return stored, recorded, {text: vector_by_text[text] for text in texts}


def _recorded_vectors(path: Path, lines: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the vector (d,) of each sample and reference; no vectors if the file is missing."""
    vector_by_text: dict[str, np.ndarray] = {}
    if not path.exists():
        return vector_by_text
    with np.load(path) as arrays:
        vectors, drawn, references = (arrays[key] for key in ("emb", "S", "Y"))
    for row, places, reference in zip(lines, drawn, references, strict=True):
        vector_by_text |= dict(zip(row["samples"], vectors[places], strict=True))
        vector_by_text[row["reference"]] = vectors[reference]
    return vector_by_text


def _stored(line: int, row: Mapping[str, Any], num_samples: int) -> DevRow:
    pairs = zip(row["samples"][:num_samples], row["logprob"][:num_samples], strict=True)
    draws = tuple(Draw(text, total_logprob=total) for text, total in pairs)
    reference = row["reference"]
    references = (reference,) if isinstance(reference, str) else tuple(reference)
    dev = DevRow(line, None, references, prompt=row["prompt"], answer=row["answer"])
    return replace(dev, answer_logprob=row.get("answer_logprob"), draws=draws, complete=True)


def embedded(texts: Sequence[str], weights: Path) -> dict[str, np.ndarray]:
    """Return the vector (d,) of each text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(weights / "all-mpnet-base-v2"), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))
