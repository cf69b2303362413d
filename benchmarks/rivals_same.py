"""LM-Polygraph's scores of NLI matrices: the half of `benchmarks.compared` in .venv-rivals.

    .venv-rivals/bin/python benchmarks/rivals_same.py SAME.json SCORES.json

SAME.json: for each question P(same) (m, m) of its samples, in place of the probabilities of entailment.
Scores are negated, so that higher = more certain.
"""

import json
import sys
from pathlib import Path

import numpy as np
from lm_polygraph.estimators import DegMat, Eccentricity, EigValLaplacian


def main(source: Path, target: Path) -> None:
    same = np.array(json.loads(source.read_text("utf-8")))
    texts = [[str(i) for i in range(same.shape[1])]] * len(same)
    stats = {
        "sample_texts": texts,
        "semantic_matrix_entail": same,
        "semantic_matrix_contra": 1.0 - same,
        "semantic_matrix_entail_logits": same,
        "semantic_matrix_contra_logits": 1.0 - same,
    }
    estimators = (DegMat, Eccentricity, EigValLaplacian)
    scores = {
        f"LM-Polygraph {one.__name__}": (
            -np.asarray(one("NLI_score", affinity="entail")(stats), dtype=float)
        ).tolist()
        for one in estimators
    }
    target.write_text(json.dumps(scores), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
