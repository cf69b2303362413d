"""A whole evaluation on made-up vectors: seconds by step, and peak memory.

    python -m benchmarks.evaluate_speed [TEST_PROMPTS [DEV_PROMPTS]]

2,000 test prompts and 500 dev prompts of 20 answers by default, d = 768, about half of the answers distinct.
Drawing and embedding are left out: they depend on the models.
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from benchmarks.spectral_worlds import DIMENSION, prompts
from service.calibration.material import Material
from service.calibration.rows import DevRow, StoredRow
from service.evaluation.experiments import make_results
from service.evaluation.page import render_evaluation
from service.llm.port import Draw
from service.report.diagnostics import EvaluationContext, Split, make_split

SAMPLES = 20


def split(count: int, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    answers = prompts(count, SAMPLES, 0.5, seed)
    texts = [[f"answer {i} number {k}" for k in range(len(a.vectors))] for i, a in enumerate(answers)]
    rows = [
        StoredRow(
            DevRow(i + 1, None, ("reference",), prompt=f"q{i}", correct=bool(rng.random() < 0.4)),
            tuple(Draw(texts[i][k]) for k in a.index),
            complete=True,
        )
        for i, a in enumerate(answers)
    ]
    return make_split(Material(rows, answers, texts, np.arange(count), SAMPLES, DIMENSION, [None] * count))


def main() -> None:
    test, dev = (int(x) for x in [*sys.argv[1:], *("2000", "500")[len(sys.argv) - 1 :]])
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bench = EvaluationContext(split(dev, 1), split(test, 2))
    print(f"{test} test and {dev} dev prompts of {SAMPLES} answers, d = {DIMENSION}")
    print(f"{'vectors made, spectra':30}{time.perf_counter() - began:8.1f} s")
    origin: Any = {"files": {}, "answers": None, "version": "", "created_at": "", "eps": 1e-10}
    origin["embedder"] = {"name": "made up", "revision": "", "dimension": DIMENSION, "precision": "float32"}
    last = time.perf_counter()
    results = make_results(bench, (dev, test), origin)
    drawn = time.perf_counter()
    render_evaluation(results)
    now = time.perf_counter()
    print(f"{'experiments':30}{drawn - last:8.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{'page':30}{now - drawn:8.1f} s\n{'all':30}{now - began:8.1f} s")
    print(f"peak memory {peak / 1024:.0f} MiB, of which {before / 1024:.0f} MiB interpreter and libraries")
    print(f"results.json {len(json.dumps(results, allow_nan=False)) / 1024:.0f} kB")


if __name__ == "__main__":
    main()
