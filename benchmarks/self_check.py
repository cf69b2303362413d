"""P(correct) with and without self-checks, on other questions than its own: tables of benchmarks/tables.md.

    python -m benchmarks.self_check

Needs ../shared/data and all-mpnet-base-v2 in data/weights. Map and model of P(correct) are fitted on one
recorded set of Qwen2.5-Coder-1.5B and tested on the other: questions of TriviaQA (26 % answered right) and
everyday questions (89 % right). The second table adds verdicts on random rows of the tested set; the
model of the first set is then the prior (means of `DRAWS` draws, judged on the other rows). Log loss in nats,
and in brackets the ECE in 8 bins of equal mass.
"""

import json
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.recorded_evidence import DATA, EVERYDAY, NAMES, OTHER, P_TRUE, QWEN, recorded
from service.spectral.correctness_model import (
    AGREEMENT,
    SELF_CHECK,
    Columns,
    CorrectnessModel,
    fit_model,
    log_loss,
    logit_self_check,
)
from service.spectral.fit import fit_depolarized, fit_evidence
from service.spectral.reliability import auroc, reliability_diagram

SIZES = ((0, True), (3, True), (3, False), (10, True), (10, False))  # answers, with log-probabilities
VERDICTS = (0, 10, 30, 100)
DRAWS = 100
BOTH = (AGREEMENT, SELF_CHECK)


def columns(
    name: str, m: int, fitted: str, p_true: np.ndarray, *, evidence: bool
) -> tuple[Columns, np.ndarray]:
    """Return the features of a set under the map of the set `fitted`, and its verdicts.

    p_true: the self-check of each row of the set.
    """
    rows = recorded(fitted).material(m).rows
    map_ = fit_evidence(rows).map if evidence else fit_depolarized(rows).map
    judged = recorded(name).material(m).judged
    checks = logit_self_check(p_true[judged.places])
    return {**judged.columns(map_), SELF_CHECK: checks}, judged.right


def recorded_p_true(name: str) -> np.ndarray:
    """Return the recorded P(True) of each row's answer, from one token."""
    return np.array(json.loads((DATA / f"{P_TRUE[name]}.json").read_text("utf-8")))


def figures(predicted: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    return log_loss(predicted, right), reliability_diagram(predicted, right.astype(np.float64)).ece


def at(columns_: Columns, rows: np.ndarray) -> Columns:
    return {name: np.asarray(column)[rows] for name, column in columns_.items()}


def with_verdicts(
    features: Columns, right: np.ndarray, known: CorrectnessModel, verdicts: int
) -> tuple[float, float]:
    """Return the mean figures on the rows without a verdict."""
    if not verdicts:
        return figures(known.predict(features), right)
    found = []
    for draw in range(DRAWS):
        order = np.random.default_rng([draw, verdicts]).permutation(right.size)
        chosen, rest = order[:verdicts], order[verdicts:]
        model = fit_model(at(features, chosen), right[chosen], BOTH, known)
        found.append(figures(model.predict(at(features, rest)), right[rest]))
    loss, ece = np.mean(found, axis=0).tolist()
    return loss, ece


def cell(pair: Sequence[float]) -> str:
    return f"{pair[0]:.3f} ({pair[1]:.3f})"


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    print("| fitted on | tested on | m | agreement | self-check | both | AUROC of both |")
    print("|---|---|---|---:|---:|---:|---:|")
    more = list[str]()
    for fitted in (QWEN, EVERYDAY):
        tested = OTHER[fitted]
        for m, evidence in SIZES:
            known, (features, right) = (
                columns(name, m, fitted, recorded_p_true(name), evidence=evidence)
                for name in (fitted, tested)
            )
            models = [fit_model(*known, names) for names in ((AGREEMENT,), (SELF_CHECK,), BOTH)]
            predicted = [model.predict(features) for model in models]
            cells = " | ".join(cell(figures(p, right)) for p in predicted)
            label = f"{m}{'' if evidence else ', no log-probabilities'}"
            head = f"| {NAMES[fitted]} | {NAMES[tested]} | {label} |"
            print(f"{head} {cells} | {auroc(predicted[-1], right):.3f} |", flush=True)
            by_verdicts = [with_verdicts(features, right, models[-1], number) for number in VERDICTS]
            more.append(f"{head} {' | '.join(map(cell, by_verdicts))} |")
    print(f"\n| known from | set | m | {' | '.join(f'{n} verdicts' for n in VERDICTS)} |")
    print("|---|---|---|" + "---:|" * len(VERDICTS))
    print("\n".join(more))


if __name__ == "__main__":
    main()
