"""What labels are worth: own fits, fits drawn to the default, and the default alone, by number of labels.

    python -m benchmarks.learning_curves [--figure docs/images/learning-curves.svg]

Evidence maps by the first m answers of n random rows of one recorded set, judged on its other rows; the
default is refitted on the other set alone, so it has seen none of them. Means over the subsets; `half right`
are rows resampled so that half of the answers are right, which stand in for a better LLM. The figure shows
P(correct) as well (`few_verdicts`). Needs ../shared/data. Takes a few minutes in one thread.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import few_verdicts
from benchmarks.recorded_evidence import DATA, DEV, TEST, WEIGHTS, Recorded
from service.spectral.dev_set import DevSet, risks, served_lambda_max
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, fit_evidence, objective, point_of
from service.spectral.reliability import reliability_diagram
from tools.recorded_rows import JudgedRows

LABELS = (5, 10, 20, 30, 70)
ANSWERS = (1, 3, 20)
SUBSETS = 50
WEIGHT = 30.0
KINDS = ("own", "shrunk", "default")


@dataclass(frozen=True)
class Curve:
    """Risk (nats) and projection ECE of each kind of fit, (kinds, labels, subsets) each; `raw`: its ECE."""

    name: str
    risk: np.ndarray
    ece: np.ndarray
    raw: float


def default_of(rows: DevSet) -> tuple[EvidenceMap, Prior]:
    map_ = fit_evidence(rows).map
    theta = point_of(map_)
    return map_, Prior(theta, objective(rows, "evidence")(theta)[2], WEIGHT)


def judged(map_: EvidenceMap, rows: DevSet) -> tuple[float, float]:
    served = np.clip(served_lambda_max(map_, rows), 0, 1)
    c1 = np.clip(rows.alignment[:, 0], 0, 1)
    return float(risks(map_, rows).mean()), reliability_diagram(served, c1).ece


def half_right(rows: np.ndarray, right: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the rows, drawn with replacement so that half of them are right."""
    kinds = [rows[right[rows]], rows[~right[rows]]]
    return np.concatenate([rng.choice(kind, size // 2 + (size % 2) * k) for k, kind in enumerate(kinds)])


def curve(name: str, rows: DevSet, right: np.ndarray, default: tuple[EvidenceMap, Prior]) -> Curve:
    """Return the figures over random subsets of the rows; right: verdicts to halve by, or none."""
    raw_c1 = np.clip(rows.alignment[:, 0], 0, 1)
    raw = reliability_diagram(np.clip(rows.eigenvalues[:, 0], 0, 1), raw_c1).ece
    found = np.empty((2, len(KINDS), len(LABELS), SUBSETS))
    for at, labels in enumerate(LABELS):
        for subset in range(SUBSETS):
            rng = np.random.default_rng([labels, subset])
            order = rng.permutation(len(rows))
            # Parted before they are resampled: no row is on both sides.
            fit, test = order[: len(rows) // 3], order[len(rows) // 3 :]
            if right.size:
                chosen, test = half_right(fit, right, labels, rng), half_right(test, right, test.size, rng)
            else:
                chosen = fit[:labels]
            held = rows.take(test)
            maps = [fit_evidence(rows.take(chosen), prior=prior).map for prior in (None, default[1])]
            for kind, map_ in enumerate([*maps, default[0]]):
                found[:, kind, at, subset] = judged(map_, held)
    return Curve(name, found[0], found[1], raw)


def curves() -> Iterator[Curve]:
    sets = {"TriviaQA dev": Recorded(DEV, embed=False), "TriviaQA test": Recorded(TEST, embed=False)}
    for m in ANSWERS:
        evidence = {name: one.evidence(m) for name, one in sets.items()}
        for name, rows in evidence.items():
            [other] = (one for key, one in evidence.items() if key != name)
            default = default_of(other)
            yield curve(f"{name}, m = {m}", rows, np.empty(0, dtype=bool), default)
            yield curve(f"{name}, half right, m = {m}", rows, sets[name].right, default)


def table(found: list[Curve]) -> None:
    print("| rows | " + " | ".join(f"{n} labels" for n in LABELS) + " |")
    print("|---|" + "---|" * len(LABELS))
    for one in found:
        base = one.risk[KINDS.index("default")]
        for kind in ("own", "shrunk"):
            more = (one.risk[KINDS.index(kind)] - base).mean(axis=1)
            print(f"| {one.name}: risk, {kind} - default | " + " | ".join(f"{x:+.3f}" for x in more) + " |")
        for kind, eces in zip(KINDS, one.ece.mean(axis=2), strict=True):
            cells = " | ".join(f"{x:.3f}" for x in eces)
            print(f"| {one.name}: projection ECE, {kind} (raw {one.raw:.3f}) | {cells} |")


COLOURS = ("#b3541e", "#1f6f8b", "#777777")
AT = 3  # answers, of the figure


def draw(found: list[Curve], path: Path) -> None:
    """Draw risk, projection ECE and log loss of P(correct) by 3 answers: a row each, a column per set."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "eigencal", "font.size": 8}
    from matplotlib import pyplot

    files = {name: JudgedRows([name], DATA, WEIGHTS, 20) for name in few_verdicts.SETS}
    verdicts = {(one.file, one.half): one for one in few_verdicts.curves(files, AT)}
    figure, grid = pyplot.subplots(3, 4, figsize=(9, 6), sharex=True, sharey="row")
    columns = [(file, half) for half in (False, True) for file in (DEV, TEST)]
    for panels, (file, half) in zip(grid.T, columns, strict=True):
        name = f"TriviaQA {file.split('_')[1]}{', half right' if half else ''}"
        [one] = (one for one in found if one.name == f"{name}, m = {AT}")
        above = (one.risk - one.risk[KINDS.index("default")]).mean(axis=2)
        losses = verdicts[file, half]
        for kind, colour in enumerate(COLOURS):
            panels[0].plot(LABELS, above[kind], "o-", color=colour, markersize=3)
            panels[1].plot(LABELS, one.ece[kind].mean(axis=1), "o-", color=colour, markersize=3)
            panels[2].plot(losses.labels, losses.losses[:, 1 + kind], "o-", color=colour, markersize=3)
        panels[0].set_title(name, fontsize=9)
        panels[0].set_xscale("log", base=2)
        panels[0].set_xticks(LABELS, [str(n) for n in LABELS])
        panels[2].set_xlabel("labelled questions")
    for panel, label in zip(
        grid[:, 0], ("risk above the default's", "projection ECE", "log loss of P(correct)"), strict=True
    ):
        panel.set_ylabel(label)
    grid[1, 0].set_ylim(bottom=0)
    grid[0, -1].legend(["own fit", "drawn to the default", "default alone"], fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    asked = parser.parse_args()
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    found = list(curves())
    table(found)
    if asked.figure:
        draw(found, asked.figure)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
