"""P(correct) from few verdicts, and what the log-probability per word adds: tables of docs/benchmarks.md.

    python -m benchmarks.few_verdicts

Needs ../shared/data and the all-mpnet-base-v2 in data/weights. Learning curves: on random rows of one
recorded TriviaQA file, map and model are fitted alone ("own"), drawn to those of the other file ("drawn"), or
taken from there ("other file"), and judged on the remaining rows: nothing has seen them. The default
calibration is made of both files, so it is left out here. "Half right": as many right rows as wrong ones are
drawn, and both kinds weigh alike in the figures. Then P(correct) by number of answers on all rows, maps and
models cross-validated, without a prior; intervals are paired bootstraps. Takes a few minutes in one thread.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import DATA, DEV, TEST, WEIGHTS
from service.calibration.default import MODEL_SHARE, PRIOR_WEIGHT
from service.calibration.labels import Judged
from service.spectral.correctness_model import (
    FEATURES,
    FEATURES_ALONE,
    Columns,
    ModelPrior,
    base_rate,
    best_features,
    fit_model,
    held_out_predictions,
    log_losses,
    model_prior,
    stratified_folds,
)
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, fit_evidence, objective, point_of
from service.spectral.reliability import auroc
from service.spectral.resampling import Difference, figure_difference, mean_difference
from tools.recorded_rows import JudgedRows

LABELS = (5, 10, 20, 30, 70)
DRAWS = 100
MIN_LEFT = 10  # right rows to be judged on
SEEDS = 10  # of folds, whose predictions' losses are averaged
SIZES = (1, 3, 5, 20)
SETS = (TEST, DEV)


@dataclass(frozen=True)
class Seen:
    """Texts with verdicts, and what the first answers say of them; by `Alone` no answer is drawn."""

    rows: Judged
    features = FEATURES

    @property
    def right(self) -> np.ndarray:
        return self.rows.right

    def columns(self, map_: EvidenceMap | None) -> Columns:
        assert map_ is not None
        return self.rows.columns(map_)

    def map(self, known: np.ndarray | None = None, prior: Prior | None = None) -> EvidenceMap | None:
        """Return the map fitted on the rows that are known, drawn to the prior; None: all of them."""
        rows = self.rows.rows
        return fit_evidence(rows if known is None else rows.take(known), prior=prior).map

    def prior(self) -> Prior | None:
        """Return the map of all rows as what others are drawn to."""
        center = point_of(fit_evidence(self.rows.rows).map)
        return Prior(center, objective(self.rows.rows, "evidence")(center)[2], PRIOR_WEIGHT)


@dataclass(frozen=True)
class Alone:
    """The same for first draws judged by themselves: there is no map."""

    every: Columns
    right: np.ndarray
    features = FEATURES_ALONE

    def columns(self, map_: EvidenceMap | None) -> Columns:
        return self.every

    def map(self, known: np.ndarray | None = None, prior: Prior | None = None) -> EvidenceMap | None:
        return None

    def prior(self) -> Prior | None:
        return None


def seen(file: JudgedRows, m: int) -> Seen | Alone:
    return Seen(file.rows.at(m)) if m else Alone(*file.alone())


@dataclass(frozen=True)
class Elsewhere:
    """Map and model of the other file, as what fits are drawn to."""

    map: EvidenceMap | None
    prior: Prior | None
    model: ModelPrior

    @classmethod
    def of(cls, rows: Seen | Alone) -> "Elsewhere":
        map_ = rows.map()
        model = model_prior(rows.columns(map_), rows.right, rows.features, MODEL_SHARE * PRIOR_WEIGHT)
        return cls(map_, rows.prior(), model)


def at(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: np.asarray(column)[rows] for name, column in columns.items()}


def judged_on(rows: Seen | Alone, known: np.ndarray, there: Elsewhere, half: bool) -> list[float]:
    """Return log losses of base rate, own, drawn and the other file's on the rows that are not known."""
    rest = np.setdiff1d(np.arange(rows.right.size), known)
    right = rows.right[rest]
    weights = np.full(right.size, 1 / right.size)
    if half:
        weights = np.where(right, 0.5 / right.sum(), 0.5 / (~right).sum())
    verdicts = rows.right[known]
    own = rows.columns(rows.map(known))
    drawn = rows.columns(rows.map(known, there.prior))
    predicted = [np.full(right.size, base_rate(verdicts))]
    if verdicts.any() and not verdicts.all():
        fold = stratified_folds(verdicts, 5, np.random.default_rng(0))
        features = best_features(at(own, known), verdicts, fold)
        predicted.append(fit_model(at(own, known), verdicts, features).predict(at(own, rest)))
    else:
        predicted.append(predicted[0])
    model = fit_model(at(drawn, known), verdicts, rows.features, prior=there.model)
    predicted.append(model.predict(at(drawn, rest)))
    predicted.append(there.model.model.predict(at(rows.columns(there.map), rest)))
    return [float(weights @ log_losses(p, right)) for p in predicted]


def chosen(right: np.ndarray, labels: int, half: bool, rng: np.random.Generator) -> np.ndarray:
    """Return the rows that are labelled; half of them right, or as they come."""
    if not half:
        return rng.permutation(right.size)[:labels]
    num_right = (labels + int(rng.integers(2))) // 2
    kinds = (rng.permutation(np.flatnonzero(right)), rng.permutation(np.flatnonzero(~right)))
    return np.concatenate([kinds[0][:num_right], kinds[1][: labels - num_right]])


@dataclass(frozen=True)
class Curve:
    """Log losses (labels, 4), means over the draws, of base rate, own, drawn, the other file's, in nats."""

    file: str
    half: bool
    right: float
    labels: list[int]
    losses: np.ndarray


def curves(files: dict[str, JudgedRows], m: int) -> Iterator[Curve]:
    """Yield those of each file by so many answers, as it is and half right."""
    known = {name: seen(one, m) for name, one in files.items()}
    for name, other in (SETS, SETS[::-1]):
        there, rows = Elsewhere.of(known[other]), known[name]
        for half in (False, True):
            enough = [n for n in LABELS if not half or rows.right.sum() - (n + 1) // 2 >= MIN_LEFT]
            losses = []
            for labels in enough:
                rngs = (np.random.default_rng([draw, labels]) for draw in range(DRAWS))
                draws = [judged_on(rows, chosen(rows.right, labels, half, one), there, half) for one in rngs]
                losses.append(np.mean(draws, axis=0))
            yield Curve(name, half, float(rows.right.mean()), enough, np.array(losses))


def learning_curves(files: dict[str, JudgedRows], m: int) -> None:
    print(f"\nP(correct) by {m} answers, log loss by number of verdicts, means of {DRAWS} draws")
    print("| file | verdicts | base rate | own | drawn | other file |")
    print("|---|---:|---:|---:|---:|---:|")
    for one in curves(files, m):
        kind = "half right" if one.half else f"{one.right:.0%} right"
        for labels, losses in zip(one.labels, one.losses, strict=True):
            figures = " | ".join(f"{loss:.3f}" for loss in losses)
            print(f"| {one.file.split('_')[1]}, {kind} | {labels} | {figures} |", flush=True)


def cross_validated(rows: Judged, features: tuple[str, ...], seed: int) -> np.ndarray:
    """Return P(correct) (n,), map and model fitted without the row's fold."""
    fold = stratified_folds(rows.right, 5, np.random.default_rng(seed))
    predicted = np.empty(len(rows))
    for number in range(5):
        held = fold == number
        columns = rows.columns(fit_evidence(rows.rows.take(~held)).map)
        predicted[held] = held_out_predictions(columns, rows.right, features, held.astype(int))[held]
    return predicted


def interval(found: Difference) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def per_word(every: JudgedRows) -> None:
    print("\nP(correct) of all rows with the log-probability per word and without")
    print("| answers | log loss | without | difference | AUROC | without | difference |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for m in SIZES:
        rows = every.rows.at(m)
        right = rows.right
        pairs = [
            np.mean([cross_validated(rows, features, seed) for seed in range(SEEDS)], axis=0)
            for features in (FEATURES, FEATURES[:-1])
        ]
        losses = [log_losses(p, right) for p in pairs]
        gap = mean_difference(*losses, np.random.default_rng(2))

        def ranked(pick: np.ndarray, pairs=pairs, right=right) -> tuple[float, float]:
            return auroc(pairs[0][pick], right[pick]), auroc(pairs[1][pick], right[pick])

        rank = figure_difference(ranked, right.size, np.random.default_rng(2), resamples=1000)
        aurocs = ranked(np.arange(right.size))
        print(
            f"| {m} | {losses[0].mean():.3f} | {losses[1].mean():.3f} | {interval(gap)} "
            f"| {aurocs[0]:.3f} | {aurocs[1]:.3f} | {interval(rank)} |",
            flush=True,
        )


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    files = {name: JudgedRows([name], DATA, WEIGHTS, 20) for name in SETS}
    for m in (0, 3, 20):
        learning_curves(files, m)
    per_word(JudgedRows(SETS, DATA, WEIGHTS, 20))


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
