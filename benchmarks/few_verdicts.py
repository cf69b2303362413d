"""P(correct) from few verdicts: a table of benchmarks/tables.md.

    python -m benchmarks.few_verdicts

Needs ../shared/data and all-mpnet-base-v2 in data/weights. Random rows of each recorded set get verdicts, and
P(correct) is evaluated on the others: log loss and ECE (8 equal-mass bins), means over `DRAWS` draws. The
evidence map needs no verdict and is fixed: for SmolLM2's files the map of the other file, for Qwen's the
packaged default. Without verdicts all rows are evaluated. The base rate is estimated from the same verdicts.
With no sample (m = 0), SmolLM2's answers have no log-probability, so the first samples are judged instead.
Takes a few minutes in one thread.
"""

import sys
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import DATA, default_for, recorded, titles
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.correctness_model import AGREEMENT, NO_VERDICTS, Columns, base_rate, fit_model, log_loss
from service.spectral.reliability import reliability_diagram

VERDICTS = (0, 10, 30, 100)
SIZES = (0, 1, 3, 10)
DRAWS = 100


@dataclass(frozen=True)
class Figures:
    """Figures of P(correct) on rows without a verdict. Lower = better; loss in nats."""

    loss: float
    ece: float
    base_rate: float


def judged_by(columns: Columns, right: np.ndarray, verdicts: int, draws: int = DRAWS) -> Figures:
    """Return means over random draws of `verdicts` rows. With 0, the base rate is over all rows."""
    if verdicts == 0:
        return _judged(NO_VERDICTS.predict(columns), right, float(right.mean()))
    figures = list[tuple[float, float, float]]()
    for draw in range(draws):
        rng = np.random.default_rng([draw, verdicts])
        order = rng.permutation(right.size)
        chosen, rest = order[:verdicts], order[verdicts:]
        model = fit_model(_at(columns, chosen), right[chosen], [AGREEMENT])
        judged = _judged(model.predict(_at(columns, rest)), right[rest], base_rate(right[chosen]))
        figures.append((judged.loss, judged.ece, judged.base_rate))
    return Figures(*np.mean(figures, axis=0).tolist())


def _judged(predicted: np.ndarray, right: np.ndarray, rate: float) -> Figures:
    ece = reliability_diagram(predicted, right.astype(np.float64)).ece
    return Figures(log_loss(predicted, right), ece, log_loss(np.full(right.size, rate), right))


def _at(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: np.asarray(column)[rows] for name, column in columns.items()}


def columns_of(name: str, m: int, kernel: Kernel = FACTS) -> tuple[Columns, np.ndarray]:
    """Return the features of P(correct) with m answers under the map of `default_for`, and the verdicts."""
    rows = recorded(name, kernel).material(m)
    return rows.judged.columns(default_for(name, m, kernel)[0]), rows.right


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    numbers = [f"{n} verdicts" for n in VERDICTS]
    print(f"| set | right | kernel | m | {' | '.join(numbers)} |")
    print("|---|---:|---|---:|" + "---:|" * len(numbers))
    for name, title in titles().items():
        for kernel in (FACTS, PAPER):
            for m in SIZES:
                columns, right = columns_of(name, m, kernel)
                figures = [judged_by(columns, right, n) for n in VERDICTS]
                head = f"| {title} | {right.mean():.1%} of {right.size} | {kernel} |"
                cells = " | ".join(f"{figures_.loss:.3f} ({figures_.ece:.3f})" for figures_ in figures)
                print(f"{head} {m} | {cells} |")
                if kernel == FACTS and m <= SIZES[1]:  # with no sample, another text may be judged
                    cells = " | ".join(f"{figures_.base_rate:.3f}" for figures_ in figures)
                    print(f"{head} base rate | {cells} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
