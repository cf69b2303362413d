"""How often promised error bounds are broken, with known true errors: tables of benchmarks/tables.md.

    python -m benchmarks.selective_worlds

A promise is broken if at any threshold the true error among the answered exceeds the bound shown, so the
figures also hold for targets chosen after looking. The first tables use 2,000 simulated worlds a line. The
next use 200 random splits of the recorded rows and need ../shared/data and all-mpnet-base-v2 in data/weights.
The next fit models of P(correct) on few rows, and count either the other half, or all rows, each scored by
a model of the other folds. The last have two features, agreement and self-check, and own rows with a
bundled prior. Takes forty minutes in one thread.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import (
    DATA,
    DEV,
    NAMES,
    QWEN,
    TEST,
    Material,
    Recorded,
    recorded,
)
from service.calibration.calibration import JudgedRows
from service.calibration.fitting import without_fold
from service.embedding.port import FACTS
from service.spectral.correctness_model import (
    AGREEMENT,
    SELF_CHECK,
    CorrectnessModel,
    fit_model,
    sigmoid,
    stratified_folds,
)
from service.spectral.reliability import rounded_ties
from service.spectral.selective import (
    MIN_ANSWERED,
    SelectiveCounts,
    error_bound,
    promise,
    selective_counts,
    simultaneous_bounds,
)

TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REPORTED = np.arange(0.05, 1.0, 0.05)
WORLDS, SPLITS, FITTED = 2000, 200, 500  # FITTED: number of worlds with fitted models
SIZES = (40, 70, 150, 300, 600)
FITTED_SIZES = (40, 150, 600)
# P(right | score), by name.
KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "few right": lambda s: 0.02 + 0.5 * s**3,  # like the recorded answers
    "half right": lambda s: 0.1 + 0.85 * s,
    "not monotone": lambda s: 0.35 + 0.3 * s * np.cos(12 * s),  # the error is not monotone in the threshold
    "worthless": lambda s: np.full_like(s, 0.5),  # the error is the same at each threshold
}


@dataclass(frozen=True)
class Rows:
    """Scores, verdicts, and whether an answer may be given, (n,) each."""

    scores: np.ndarray
    right: np.ndarray
    may: np.ndarray

    def counts(self) -> SelectiveCounts:
        return selective_counts(self.scores, self.right, self.may)


class World:
    """Uniform scores on `steps` + 1 values in [0, 1], with known P(right | score) and true errors."""

    def __init__(self, right: Callable[[np.ndarray], np.ndarray], steps: int = 4000) -> None:
        self.steps = steps
        self.grid = np.linspace(0.0, 1.0, steps + 1)
        self.p = np.broadcast_to(right(self.grid), self.grid.shape)
        self.errors = np.cumsum((1 - self.p)[::-1])[::-1] / np.arange(steps + 1, 0, -1)

    def draw(self, rng: np.random.Generator, size: int) -> Rows:
        at = rng.integers(0, self.steps + 1, size)
        return Rows(self.grid[at], rng.random(size) < self.p[at], np.ones(size, dtype=bool))

    def error(self, threshold: float) -> float:
        return float(self.errors[round(threshold * self.steps)])


@dataclass(frozen=True)
class Known(Rows):
    """A whole population: row i stands for the share `weights[i]` of it."""

    weights: np.ndarray

    def error(self, threshold: float) -> float:
        above = self.may & (rounded_ties(self.scores) >= rounded_ties(threshold))
        weights = self.weights[above]
        return float(weights @ ~self.right[above] / weights.sum()) if weights.size else 0.0

    def draw(self, rng: np.random.Generator, size: int) -> Rows:
        at = rng.choice(self.weights.size, size, p=self.weights)
        return Rows(self.scores[at], self.right[at], self.may[at])


def naive(rows: Rows, target: float) -> float | None:
    """Return the lowest threshold with an error on these rows of at most the target."""
    order = np.argsort(-rows.scores[rows.may], kind="stable")
    wrong = np.cumsum(~rows.right[rows.may][order])
    kept = np.flatnonzero(wrong <= target * np.arange(1, order.size + 1))
    return float(rows.scores[rows.may][order][kept[-1]]) if kept.size else None


@dataclass
class Tally:
    """Counts of broken promises over worlds. broken: worlds in which the true error exceeds a shown bound."""

    worlds: int = 0
    shown: int = 0
    broken: int = 0
    bounds_shown: int = 0
    bounds_broken: int = 0

    def add(self, counts: SelectiveCounts, population: "World | Known | Exact") -> bool:
        bounds = simultaneous_bounds(counts)
        errors = np.array([population.error(threshold) for threshold in counts.thresholds])
        shown = bounds < 1
        broken = int((errors > bounds).sum())
        self.worlds += 1
        self.shown += bool(shown.any())
        self.broken += broken > 0
        self.bounds_shown += int(shown.sum())
        self.bounds_broken += broken
        return broken > 0

    def cells(self) -> str:
        """Return the broken shares of worlds, of worlds with a promise, and of promises."""
        shares = (
            self.broken / self.worlds,
            self.broken / max(self.shown, 1),
            self.bounds_broken / max(self.bounds_shown, 1),
        )
        return " | ".join(f"{share:.3f}" for share in shares)


def tally(world: World, worlds: int, size: int, seed: int = 0) -> Tally:
    """Return the tally of `worlds` calibrations with `size` counted rows each."""
    rng, tally_ = np.random.default_rng([seed, size]), Tally()
    for _ in range(worlds):
        tally_.add(world.draw(rng, size).counts(), world)
    return tally_


def in_sequence(rows: Rows, target: float) -> float | None:
    """Test thresholds, the strictest first, and return the last before a failure; None if the first fails.

    Testing starts at the strictest threshold that would pass without wrong answers. Each test uses the whole
    error probability: fixed-sequence testing of one target (Angelopoulos et al., Learn then Test, 2021).
    """
    counts = rows.counts()
    wrong, answered = np.array(counts.wrong), np.array(counts.answered)
    can_pass = (answered >= MIN_ANSWERED) & (error_bound(np.zeros_like(wrong), answered) <= target)
    passed = (error_bound(wrong, answered) <= target)[can_pass]
    number = int(np.append(passed, False).argmin())
    return float(np.array(counts.thresholds)[can_pass][number - 1]) if number else None


def broken_by(
    choose: Callable[[Rows, float], float | None],
    world: World,
    targets: Sequence[float],
    worlds: int,
    size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of worlds with a true error above each target, and the mean share let through."""
    rng, exceeded, through = np.random.default_rng(0), np.zeros(len(targets)), np.zeros(len(targets))
    for _ in range(worlds):
        rows = world.draw(rng, size)
        chosen = [choose(rows, target) for target in targets]
        pairs = zip(chosen, targets, strict=True)
        exceeded += [t is not None and world.error(t) > target for t, target in pairs]
        through += [0.0 if t is None else float((world.grid >= t).mean()) for t in chosen]
    return exceeded / worlds, through / worlds


def recorded_splits(
    data: Recorded, sizes: Sequence[int], splits: int, *, share_right: float | None = None
) -> Iterator[list[tuple[Rows, Known]]]:
    """Yield the counted rows and their population for each number of answers, per random split.

    A stratified half of the judged rows fits map and model. The other half is the population with known
    errors; the counted rows are drawn from it with replacement, as many as it has. share_right: weight of
    the right rows in both halves, to imitate an LLM with this accuracy; then 300 rows are counted.
    """
    materials = [data.material(m) for m in sizes]
    for seed in range(splits):
        yield [_split(material, seed, share_right) for material in materials]


def _split(material: Material, seed: int, share_right: float | None) -> tuple[Rows, Known]:
    # The seed does not depend on the number of answers, so fitted and counted rows are always the same.
    rng = np.random.default_rng(seed)
    fitted = stratified_folds(material.right, 2, rng) == 0
    seen, right = material.right[fitted], material.right[~fitted]
    at = np.arange(seen.size)
    if share_right is not None:
        at = rng.choice(seen.size, seen.size, p=_weights(seen, share_right))
    columns = [material.columns(fitted, part) for part in (fitted, ~fitted)]
    model = fit_model({name: column[at] for name, column in columns[0].items()}, seen[at], [AGREEMENT])
    truth = Known(
        model.predict(columns[1]),
        right,
        material.supported(~fitted),
        _weights(right, share_right or right.mean()),
    )
    return truth.draw(rng, right.size if share_right is None else 300), truth


def _weights(right: np.ndarray, share_right: float) -> np.ndarray:
    return np.where(right, share_right / right.sum(), (1 - share_right) / (~right).sum())


# Slopes of the logistic law of verdicts over the agreement. The model's prior is centred at 1.
LAWS = {"as the prior": 1.0, "twice as sharp": 2.0, "worthless": 0.0}


class VerdictWorld:
    """A large population with verdicts by a logistic law of the agreement, and models fitted on few rows."""

    SIZE, FOLDS = 20_000, 5

    def __init__(self, law: str, base_rate: float) -> None:
        skew = np.exp(0.6 * np.random.default_rng(7).standard_normal(self.SIZE))
        spread = 1.5 * (skew - skew.mean()) / skew.std()
        self.agreement = spread + _offset(spread, base_rate)
        logits = LAWS[law] * self.agreement
        self.p = sigmoid(logits + _offset(logits, base_rate))

    def rivals(self, rng: np.random.Generator, size: int) -> dict[str, tuple[SelectiveCounts, "Exact"]]:
        """Return counts of `size` labelled rows and the population under the served model, by method."""
        at = rng.integers(0, self.SIZE, size)
        right = rng.random(size) < self.p[at]

        def predictions_of(rows: np.ndarray) -> np.ndarray:
            model = fit_model({AGREEMENT: self.agreement[at[rows]]}, right[rows], (AGREEMENT,))
            return model.predict({AGREEMENT: self.agreement})

        whole = predictions_of(np.arange(size))
        fold, held_out = stratified_folds(right, self.FOLDS, rng), np.empty(size)
        for k in range(self.FOLDS):
            held_out[fold == k] = predictions_of(np.flatnonzero(fold != k))[at[fold == k]]
        half = stratified_folds(right, 2, rng) == 0
        served = predictions_of(np.flatnonzero(half))
        return {
            "folds": (selective_counts(held_out, right), Exact(whole, self.p)),
            "halves": (selective_counts(served[at[~half]], right[~half]), Exact(served, self.p)),
            "neither": (selective_counts(whole[at], right), Exact(whole, self.p)),
        }


def _offset(logits: np.ndarray, base_rate: float) -> float:
    """Return the offset to the logits (n,) with which the mean probability is `base_rate`."""
    low, high = -15.0, 15.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(logits + middle).mean() < base_rate else (low, middle)
    return low


@dataclass(frozen=True)
class Exact:
    """A population with scores and probabilities of being right, (n,) each."""

    scores: np.ndarray
    p: np.ndarray

    def error(self, threshold: float) -> float:
        above = self.scores >= threshold
        return float(1 - self.p[above].mean()) if above.any() else 0.0

    def coverage(self, threshold: float | None) -> float:
        return 0.0 if threshold is None else float((self.scores >= threshold).mean())


def simulated() -> None:
    """Print the shares of broken bounds in simulated worlds, then for single targets."""
    print("| world | counted rows | worlds broken | of those with a promise | of the promises |")
    print("|---|---:|---:|---:|---:|")
    for name, right in KINDS.items():
        for steps, note in ((4000, ""), (10, ", 11 scores")):
            for size in SIZES:
                print(f"| {name}{note} | {size} | {tally(World(right, steps), WORLDS, size).cells()} |")
    print("\n| error above the target (let through), 200 rows | " + " | ".join(map(str, TARGETS)) + " |")
    print("|---|" + "---:|" * len(TARGETS))
    rules = {"the bounds": bounded, "in sequence": in_sequence, "naive": naive}
    for kind, right in KINDS.items():
        for rule, choose in rules.items():
            shares = zip(*broken_by(choose, World(right), TARGETS, WORLDS, 200), strict=True)
            cells = [f"{exceeded:.3f} ({through:.2f})" for exceeded, through in shares]
            print(f"| {kind}, {rule} | {' | '.join(cells)} |")


def bounded(rows: Rows, target: float) -> float | None:
    """Return the served threshold."""
    return promise(rows.counts(), target).threshold


def fewest_breaks(pairs: Sequence[tuple[Rows, Known]], target: float) -> bool:
    """Return True if the recommended number of answers, the smallest that reaches the target, breaks it."""
    for rows, truth in pairs:
        if (threshold := bounded(rows, target)) is not None:
            return truth.error(threshold) > target
    return False


def by_sets() -> None:
    """Print the shares of broken bounds on the recorded rows, for fixed and chosen numbers of answers."""
    print("\n| recorded rows | answers | splits broken | of those with a promise | of the promises |")
    print("|---|---:|---:|---:|---:|")
    both = Recorded(TEST, DEV, embed=True, kernel=FACTS)
    for name, data, sizes, share_right in (
        (NAMES[QWEN], recorded(QWEN), (0, 1, 3, 5, 10), None),
        ("SmolLM2-135M", both, (0, 1, 3, 5, 20), None),
        ("SmolLM2-135M, half right", both, (0, 1, 3, 5, 20), 0.5),
    ):
        tallies, any_of_all, any_of_fewest = {m: Tally() for m in sizes}, 0, 0
        for pairs in recorded_splits(data, sizes, SPLITS, share_right=share_right):
            broken = [
                tallies[m].add(rows.counts(), truth) for m, (rows, truth) in zip(sizes, pairs, strict=True)
            ]
            any_of_all += any(broken)
            any_of_fewest += any(fewest_breaks(pairs, target) for target in REPORTED)
        for m in sizes:
            print(f"| {name} | {m} | {tallies[m].cells()} |")
        print(f"| {name} | any of them | {any_of_all / SPLITS:.3f} | | |")
        print(f"| {name} | the fewest that reach a target | {any_of_fewest / SPLITS:.3f} | | |", flush=True)


def fitted_on_few() -> None:
    """Print broken bounds and coverage at a reachable target, for halves and folds."""
    ways = ("folds", "halves", "neither")
    print("\n| law | right | rows | " + " | ".join(f"{way}: broken | answered" for way in ways) + " |")
    print("|---|---:|---:|" + "---:|" * 2 * len(ways))
    for law in LAWS:
        for base_rate, target in ((0.1, 0.8), (0.3, 0.55), (0.5, 0.35)):
            world = VerdictWorld(law, base_rate)
            for size in FITTED_SIZES:
                rng = np.random.default_rng([size, int(100 * base_rate)])
                tallies, covered = {way: Tally() for way in ways}, dict.fromkeys(ways, 0.0)
                for _ in range(FITTED):
                    for way, (counts, truth) in world.rivals(rng, size).items():
                        tallies[way].add(counts, truth)
                        covered[way] += truth.coverage(promise(counts, target).threshold) / FITTED
                cells = [f"{tallies[way].broken / FITTED:.3f} | {covered[way]:.3f}" for way in ways]
                print(f"| {law} | {base_rate} | {size} | " + " | ".join(cells) + " |", flush=True)


# Weights of the agreement and of the self-check in the logistic law of verdicts. The prior has 1 and .8.
CHECKED_LAWS = {
    "as the prior": (1.0, 0.8),
    "worthless self-check": (1.0, 0.0),
    "self-check alone": (0.0, 1.5),
}
BOTH = (AGREEMENT, SELF_CHECK)
NUM_BUNDLED, FEW = 240, (10, 30, 90)


class CheckedWorld:
    """A large population of answers with agreement, self-check and verdicts."""

    SIZE, FOLDS = 20_000, 5

    def __init__(self, law: str, base_rate: float) -> None:
        rng = np.random.default_rng(11)
        shared, *own = rng.standard_normal((3, self.SIZE))
        weights = CHECKED_LAWS[law]
        self.table = {name: 1.5 * (0.5 * shared + noise) for name, noise in zip(BOTH, own, strict=True)}
        logits = weights[0] * self.table[AGREEMENT] + weights[1] * self.table[SELF_CHECK]
        self.p = sigmoid(logits + _offset(logits, base_rate))

    def at(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in self.table.items()}

    def labelled(
        self, rng: np.random.Generator, size: int, known: CorrectnessModel | None = None
    ) -> tuple[CorrectnessModel, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a model of drawn rows, the rows, their verdicts, folds and held-out P(correct)."""
        rows = rng.integers(0, self.SIZE, size)
        right = rng.random(size) < self.p[rows]
        fold, held_out = stratified_folds(right, self.FOLDS, rng), np.empty(size)
        for k in range(self.FOLDS):
            held = fold == k
            model = fit_model(self.at(rows[~held]), right[~held], BOTH, known)
            held_out[held] = model.predict(self.at(rows[held]))
        return fit_model(self.at(rows), right, BOTH, known), rows, right, fold, held_out


def with_self_checks() -> None:
    """Print broken bounds with two features, for rows alone and for few rows with a bundled prior."""
    print("\n| law | rows | worlds broken | of those with a promise | of the promises |")
    print("|---|---:|---:|---:|---:|")
    for law in CHECKED_LAWS:
        bundled, own = CheckedWorld(law, 0.35), CheckedWorld(law, 0.7)
        for size in FITTED_SIZES:
            rng, tally_ = np.random.default_rng(size), Tally()
            for _ in range(FITTED):
                model, _, right, _, held_out = bundled.labelled(rng, size)
                truth = Exact(model.predict(bundled.table), bundled.p)
                tally_.add(selective_counts(held_out, right), truth)
            print(f"| {law} | {size} | {tally_.cells()} |", flush=True)
        for size in FEW:
            rng, tally_ = np.random.default_rng(size), Tally()
            for _ in range(FITTED):
                known, rows, verdicts, fold, _ = bundled.labelled(rng, NUM_BUNDLED)
                columns = {name: tuple(column.tolist()) for name, column in bundled.at(rows).items()}
                kept = JudgedRows(columns, tuple(verdicts), (True,) * NUM_BUNDLED, tuple(fold))
                model, rows, right, _, held_out = own.labelled(rng, size, known)
                others = without_fold(kept, BOTH, own.at(rows), right)
                counts = selective_counts(np.append(held_out, others), np.append(right, verdicts))
                tally_.add(counts, _mixture(model, own, bundled, size))
            print(f"| {law} | {size} and {NUM_BUNDLED} bundled | {tally_.cells()} |", flush=True)


def _mixture(model: CorrectnessModel, own: CheckedWorld, bundled: CheckedWorld, size: int) -> Exact:
    """Return a population of own and bundled questions in the proportion of the counted rows."""
    part = own.SIZE * size // NUM_BUNDLED
    few = own.at(np.arange(part))
    scores = np.append(model.predict(few), model.predict(bundled.table))
    return Exact(scores, np.append(own.p[:part], bundled.p))


def main() -> None:
    simulated()
    if DATA.is_dir():
        by_sets()
    fitted_on_few()
    with_self_checks()


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
