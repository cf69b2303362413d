"""Thresholds of a calibration keep their promises in all but a few of 100 simulated worlds."""

import numpy as np

from service.calibration.fitting import OperatingPoint, fit_points, folds
from service.calibration.labels import LabelledRows
from service.calibration.material import DevSet
from service.spectral.selective import promise, simultaneous_bounds
from tests.support.decisions import judged_material, judged_rows


def fitted(material: DevSet, seed: int) -> dict[int, OperatingPoint]:
    rows = LabelledRows(material)
    return fit_points(rows, "evidence", folds(rows, seed), rng=np.random.default_rng(seed))


def test_all_promises_hold_simultaneously_in_simulated_worlds() -> None:
    """Counts worlds in which new questions break the promise at any threshold."""
    worlds, size = 100, 3
    rows = LabelledRows(judged_material(judged_rows(2000, seed=10_000, num_samples=size)))
    new, broken, reached = rows.at(size), 0, 0
    for seed in range(worlds):
        material = judged_material(judged_rows(200, seed=seed, num_samples=size))
        points = fitted(material, seed)
        if (selector := points[size].selector) is None:
            continue
        reached += promise(selector.counts, 0.3).threshold is not None
        scores = selector.model.predict(new.columns(selector.map))
        let = new.supported & (scores >= np.array(selector.counts.thresholds)[:, None])
        errors = (let & ~new.right).sum(axis=1) / np.maximum(let.sum(axis=1), 1)
        broken += bool((errors > simultaneous_bounds(selector.counts)).any())
    assert reached > 30
    assert broken / worlds <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / worlds)


def test_promise_holds_with_many_unsupported_texts() -> None:
    """Unsupported own answers are wrong here; counting them as let through would break the promise."""
    target, runs, size = 0.3, 100, 2
    new = LabelledRows(judged_material(judged_rows(3000, seed=10_000, num_samples=size))).at(size)
    assert 0.1 < (~new.supported).mean() < 0.9
    broken = reached = 0
    for seed in range(runs):
        material = judged_material(judged_rows(160, seed=seed, num_samples=size))
        selectors = fitted(material, seed)
        if (selector := selectors[size].selector) is None:
            continue
        made = promise(selector.counts, target)
        if made.threshold is None:
            continue
        let = new.supported & (selector.model.predict(new.columns(selector.map)) >= made.threshold)
        reached += 1
        broken += (~new.right[let]).mean() > target
        assert made.coverage <= 1 - selector.counts.never_answered / selector.counts.num_rows
    assert reached > 30
    assert broken / runs <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / runs)
