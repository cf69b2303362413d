"""Number of rows and answers that a calibration needs: the tables of docs/calibrating.md.

    python -m benchmarks.rows_needed

Fits on random subsets of 300 recorded TriviaQA questions (20 answers each, all-mpnet-base-v2) are tested on
400 other questions. Needs ../shared/data. Columns are means over the subsets; `worst` is the maximum. The
second table fits all 300 questions for each number of answers m; its AUROC is of the raw lambda_max of the
first m answers against ROUGE-L. Takes about 30 s in one thread.
"""

import json
import sys
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.spectral_worlds import DATA, DEV, DIMENSION, TEST, recorded
from service.claims.verdicts import correct
from service.spectral.dev_set import Answers, DevSpectra, dev_set, risk, served_lambda_max
from service.spectral.fit import bootstrap, fit_depolarized
from service.spectral.reliability import auroc, projection_brier, reliability_diagram
from service.spectral.spectrum import CalibrationMap, Identity

NUM_SAMPLES = 20
ANSWERS = (3, 5, 10, 20, 40)
ROWS = (30, 60, 100, 150, 300)
SUBSETS = 20
RESAMPLES = 200


@dataclass(frozen=True)
class FitFigures:
    """Widths of the 95 % intervals of T and g of one fit, and its figures on the other questions."""

    temperature_width: float
    depolarization_width: float
    risk: float
    ece: float
    brier: float


def questions(name: str, num_samples: int) -> list[Answers]:
    return recorded(None, name, num_samples) or sys.exit("The recorded answers are missing: ../shared/data")


def figures(map_: CalibrationMap, test: DevSpectra) -> tuple[float, float, float]:
    """Return risk, projection ECE and Brier score of a map on test questions."""
    served, c1 = np.clip(served_lambda_max(map_, test), 0, 1), np.clip(test.alignment[:, 0], 0, 1)
    return risk(map_, test), reliability_diagram(served, c1).ece, projection_brier(served, c1)


def fit_figures(dev: DevSpectra, test: DevSpectra, rng: np.random.Generator) -> FitFigures:
    spread = bootstrap(dev, "depolarized", rng=rng, resamples=RESAMPLES)
    widths = [interval.high - interval.low for interval in spread.intervals.values()]
    return FitFigures(*widths, *figures(fit_depolarized(dev).map, test))


def by_rows() -> None:
    dev, test = (dev_set(questions(name, NUM_SAMPLES), DIMENSION) for name in (DEV, TEST))
    print("| rows | subsets | width of T | width of g | risk | worst | projection ECE | worst | Brier |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    raw = figures(Identity(), test)
    print(f"| none (raw) | | | | {raw[0]:.3f} | | {raw[1]:.3f} | | {raw[2]:.4f} |")
    for rows in ROWS:
        rng = np.random.default_rng(rows)
        subsets = SUBSETS if rows < len(dev) else 1
        fits = [fit_figures(dev.take(rng.permutation(len(dev))[:rows]), test, rng) for _ in range(subsets)]
        table = np.array(
            [[f.temperature_width, f.depolarization_width, f.risk, f.ece, f.brier] for f in fits]
        )
        mean, worst = table.mean(axis=0), table.max(axis=0)
        print(
            f"| {rows} | {subsets} | {mean[0]:.2f} | {mean[1]:.3f} | {mean[2]:.3f} | {worst[2]:.3f} "
            f"| {mean[3]:.3f} | {worst[3]:.3f} | {mean[4]:.4f} |"
        )


def by_answers() -> None:
    rows = [json.loads(line) for line in (DATA / f"{DEV}.jsonl").read_text().splitlines()]
    right = [correct(row["answer"], [row["reference"]]) for row in rows]
    print("| m | T | g | AUROC of lambda_max |")
    print("|---:|---:|---:|---:|")
    for m in ANSWERS:
        dev = dev_set(questions(DEV, m), DIMENSION)
        map_, raw = fit_depolarized(dev).map, dev.eigenvalues[:, 0]
        print(f"| {m} | {map_.temperature:.2f} | {map_.depolarization:.2f} | {auroc(raw, right):.3f} |")


def main() -> None:
    by_rows()
    print()
    by_answers()


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
