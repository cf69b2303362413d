"""Number of rows and answers that a calibration needs: the tables of docs/calibrating.md.

    python -m benchmarks.rows_needed

Fits on random subsets of 300 recorded TriviaQA questions (20 answers each, all-mpnet-base-v2) are tested on
400 other questions. Needs ../shared/data. Columns are means over the subsets; `worst` is the maximum. The
second table fits all 300 questions for each number of answers m; its AUROC is of the raw lambda_max of the
first m answers against ROUGE-L. Takes about 30 s in one thread.
"""

import json
import sys

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.spectral_worlds import DATA, DEV, DIMENSION, TEST, recorded
from lab.vectors import Answers, dev_set
from service.claims.verdicts import correct
from service.spectral.dev_set import DevSpectra, risk, served_lambda_max
from service.spectral.fit import fit_depolarized
from service.spectral.reliability import auroc, projection_brier, reliability_diagram
from service.spectral.spectrum import CalibrationMap, TemperatureMap

NUM_SAMPLES = 20
ANSWERS = (3, 5, 10, 20, 40)
ROWS = (30, 60, 100, 150, 300)
SUBSETS = 20


def questions(name: str, num_samples: int) -> list[Answers]:
    return recorded(None, name, num_samples) or sys.exit("The recorded answers are missing: ../shared/data")


def figures(map_: CalibrationMap, test: DevSpectra) -> tuple[float, float, float]:
    """Return risk, projection ECE and Brier score of a map on test questions."""
    served, c1 = np.clip(served_lambda_max(map_, test), 0, 1), np.clip(test.alignment[:, 0], 0, 1)
    return risk(map_, test), reliability_diagram(served, c1).ece, projection_brier(served, c1)


def by_rows() -> None:
    dev, test = (dev_set(questions(name, NUM_SAMPLES), DIMENSION) for name in (DEV, TEST))
    print("| rows | subsets | risk | worst | projection ECE | worst | Brier |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    raw = figures(TemperatureMap(1.0), test)
    print(f"| none (raw) | | {raw[0]:.3f} | | {raw[1]:.3f} | | {raw[2]:.4f} |")
    for rows in ROWS:
        rng = np.random.default_rng(rows)
        subsets = SUBSETS if rows < len(dev) else 1
        parts = [dev.take(rng.permutation(len(dev))[:rows]) for _ in range(subsets)]
        table = np.array([figures(fit_depolarized(part).map, test) for part in parts])
        mean, worst = table.mean(axis=0), table.max(axis=0)
        print(
            f"| {rows} | {subsets} | {mean[0]:.3f} | {worst[0]:.3f} "
            f"| {mean[1]:.3f} | {worst[1]:.3f} | {mean[2]:.4f} |"
        )


def by_answers() -> None:
    rows = [json.loads(line) for line in (DATA / f"{DEV}.jsonl").read_text().splitlines()]
    right = [correct(row["answer"], [row["reference"]]) for row in rows]
    print("| m | T | g | AUROC of lambda_max |")
    print("|---:|---:|---:|---:|")
    for m in ANSWERS:
        dev = dev_set(questions(DEV, m), DIMENSION)
        map_ = fit_depolarized(dev).map
        ranking = auroc(dev.eigenvalues[:, 0], right)
        print(f"| {m} | {map_.temperature:.2f} | {map_.depolarization:.2f} | {ranking:.3f} |")


def main() -> None:
    by_rows()
    print()
    by_answers()


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
