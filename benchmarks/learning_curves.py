"""The value of labels: own fits, fits shrunk to the default, and the default, by number of labels.

    python -m benchmarks.learning_curves [--figure docs/images/learning-curves.svg]

Evidence maps are fitted on the first m answers of n random rows of one recorded set, and evaluated on other
rows. The default is fitted without this set: the packaged map for Qwen's answers, and for SmolLM2's a map
fitted on its other set only. Figures are means over the subsets. The plot also shows P(correct)
(`few_verdicts`). Needs ../shared/data and all-mpnet-base-v2 in data/weights. Takes a few minutes in one
thread.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.few_verdicts import columns_of, judged_by
from benchmarks.recorded_evidence import DATA, NAMES, default_for, recorded
from service.spectral.dev_set import DevSpectra, risks, served_lambda_max
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, fit_evidence
from service.spectral.reliability import reliability_diagram

LABELS = (5, 10, 20, 30, 70)
ANSWERS = (1, 3, 10)
SUBSETS = 50
KINDS = ("own", "drawn", "default")


@dataclass(frozen=True)
class Curve:
    """Risk (nats) and projection ECE of each kind of fit, (kinds, labels, subsets); `raw`: the raw ECE."""

    file: str
    m: int
    risk: np.ndarray
    ece: np.ndarray
    raw: float

    @property
    def name(self) -> str:
        return f"{NAMES[self.file]}, m = {self.m}"


def judged(map_: EvidenceMap, rows: DevSpectra) -> tuple[float, float]:
    served = np.clip(served_lambda_max(map_, rows), 0, 1)
    c1 = np.clip(rows.alignment[:, 0], 0, 1)
    return float(risks(map_, rows).mean()), reliability_diagram(served, c1).ece


def curve(file: str, m: int, rows: DevSpectra, default: tuple[EvidenceMap, Prior]) -> Curve:
    """Return the figures for random subsets of the rows."""
    raw_c1 = np.clip(rows.alignment[:, 0], 0, 1)
    raw = reliability_diagram(np.clip(rows.eigenvalues[:, 0], 0, 1), raw_c1).ece
    figures = np.empty((2, len(KINDS), len(LABELS), SUBSETS))
    for at, labels in enumerate(LABELS):
        for subset in range(SUBSETS):
            order = np.random.default_rng([labels, subset]).permutation(len(rows))
            # The number of evaluated rows does not depend on the number of labels.
            chosen, held = rows.take(order[:labels]), rows.take(order[LABELS[-1] :])
            maps = [fit_evidence(chosen, prior=prior).map for prior in (None, default[1])]
            for kind, map_ in enumerate([*maps, default[0]]):
                figures[:, kind, at, subset] = judged(map_, held)
    return Curve(file, m, figures[0], figures[1], raw)


def curves() -> Iterator[Curve]:
    for name in NAMES:
        for m in ANSWERS:
            yield curve(name, m, recorded(name).material(m).rows, default_for(name, m))


def table(curves_: list[Curve]) -> None:
    print("| rows | " + " | ".join(f"{n} labels" for n in LABELS) + " |")
    print("|---|" + "---|" * len(LABELS))
    for curve_ in curves_:
        base = curve_.risk[KINDS.index("default")]
        for kind in ("own", "drawn"):
            more = (curve_.risk[KINDS.index(kind)] - base).mean(axis=1)
            print(
                f"| {curve_.name}: risk, {kind} - default | " + " | ".join(f"{x:+.3f}" for x in more) + " |"
            )
        for kind, eces in zip(KINDS, curve_.ece.mean(axis=2), strict=True):
            cells = " | ".join(f"{x:.3f}" for x in eces)
            print(f"| {curve_.name}: projection ECE, {kind} (raw {curve_.raw:.3f}) | {cells} |")


COLOURS = ("#b3541e", "#1f6f8b", "#777777")
AT = 3  # number of answers in the figure


def draw(curves_: list[Curve], path: Path) -> None:
    """Draw risk, projection ECE and log loss of P(correct) with 3 answers, one row each, a column per set."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "eigencal", "font.size": 8}
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(3, len(NAMES), figsize=(9, 6), sharex=True, sharey="row")
    shown = [curve_ for curve_ in curves_ if curve_.m == AT]
    for panels, curve_ in zip(grid.T, shown, strict=True):
        above = (curve_.risk - curve_.risk[KINDS.index("default")]).mean(axis=2)
        columns, right = columns_of(curve_.file, AT)
        verdicts = [judged_by(columns, right, n) for n in LABELS]
        without = judged_by(columns, right, 0).loss
        losses = ([v.base_rate for v in verdicts], [v.loss for v in verdicts], [without] * len(LABELS))
        for kind, colour in enumerate(COLOURS):
            panels[0].plot(LABELS, above[kind], "o-", color=colour, markersize=3)
            panels[1].plot(LABELS, curve_.ece[kind].mean(axis=1), "o-", color=colour, markersize=3)
            panels[2].plot(LABELS, losses[kind], "o-", color=colour, markersize=3)
        panels[0].set_title(NAMES[curve_.file].replace(", ", "\n"), fontsize=9)
        panels[0].set_xscale("log", base=2)
        panels[0].set_xticks(LABELS, [str(n) for n in LABELS])
        panels[2].set_xlabel("labelled questions")
    for panel, label in zip(
        grid[:, 0], ("risk above the default's", "projection ECE", "log loss of P(correct)"), strict=True
    ):
        panel.set_ylabel(label)
    grid[1, 0].set_ylim(bottom=0)
    grid[0, -1].legend(["own fit", "drawn to the default", "default alone"], fontsize=8)
    grid[2, -1].legend(["base rate", "with verdicts", "without a verdict"], fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    curves_ = list(curves())
    table(curves_)
    if options.figure:
        draw(curves_, options.figure)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
