"""P(correct) and thresholds fitted with a calibration. tests/golden checks their promises."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from service.calibration.fitting import (
    FOLDS,
    Fitted,
    Stream,
    fit_all,
    rng,
)
from service.calibration.labels import LabelledRows
from service.calibration.promotion import vetoes
from service.spectral.correctness_model import (
    stratified_folds,
)
from tests.support.calibrations import calibration
from tests.support.decisions import judged_material, judged_rows


@cache
def fitted(method: str = "evidence", count: int = 160) -> Fitted:
    return fit_all(LabelledRows(judged_material(judged_rows(count))), method)


def test_counts_use_out_of_fold_predictions() -> None:
    rows = LabelledRows(judged_material(judged_rows(160)))
    for m, at in list(fitted().decided.items())[1:]:
        assert at.selector is not None
        assert at.fit.held_out is not None
        seen, scores = rows.at(m), at.fit.held_out
        assert at.selector.counts.never_answered == (~seen.supported).sum()
        for threshold, answered, wrong in zip(*vars_of(at.selector), strict=True):
            through = (scores >= threshold - 1e-12) & seen.supported
            assert (through.sum(), (~seen.right[through]).sum()) == (answered, wrong)


def vars_of(one: object) -> tuple[Sequence[float], Sequence[int], Sequence[int]]:
    counts = one.counts
    return counts.thresholds, counts.answered, counts.wrong


def test_row_is_predicted_by_a_map_fitted_without_it() -> None:
    """Changing the references of one fold changes the served map, but not the predictions of that fold."""
    rows = judged_rows(160)
    before = fitted()
    right = LabelledRows(judged_material(rows)).at(4).right
    held = stratified_folds(right, FOLDS, rng(0, Stream.FOLDS)) == 1
    others = [
        replace(row, references=("else",)) if changed else row
        for row, changed in zip(rows, held, strict=True)
    ]
    after = fit_all(LabelledRows(judged_material(others)), "evidence")
    assert before.parameters != after.parameters
    for m, decision in before.decided.items():
        other = after.decided[m]
        assert decision.fit.held_out is not None
        assert other.fit.held_out is not None
        assert np.array_equal(decision.fit.held_out[held], other.fit.held_out[held])
        assert not np.array_equal(decision.fit.held_out[~held], other.fit.held_out[~held])


def test_sampled_answers_replace_missing_ones_only_if_few_are_missing() -> None:
    rows = [replace(judged_row, answer_logprob=-1.0) for judged_row in judged_rows(100)]
    for lacking, is_replaced in ((10, True), (11, False)):
        rows_ = [
            replace(row, answer=f"{i} undrawn", answer_logprob=None) if i < lacking else row
            for i, row in enumerate(rows)
        ]
        labelled = LabelledRows(judged_material(rows_))
        assert labelled.serves_none == is_replaced
        assert len(labelled.at(0)) == 100 - lacking


def test_selectors_exist_for_the_fitted_numbers_of_answers() -> None:
    rows = judged_rows(60, num_samples=80, logprobs=False)
    sizes = sorted(fit_all(LabelledRows(judged_material(rows)), "depolarized").decided)
    assert sizes[0] == 2
    assert sizes[-1] == 80
    assert len(sizes) < 79


def test_without_own_log_probabilities_the_bundled_selector_serves_no_answers_and_is_marked() -> None:
    bundled = fitted("depolarized")
    known = replace(calibration(), method="depolarized", selectors=bundled.selectors())
    rows = LabelledRows(judged_material(judged_rows(160, seed=1, logprobs=False)))
    selectors = fit_all(rows, "depolarized", known=known).selectors()
    assert {m: selector.is_bundled for m, selector in selectors.items()} == {
        0: True,
        2: False,
        3: False,
        4: False,
    }
    assert selectors[0].model == bundled.selectors()[0].model


def test_a_bundled_selector_for_no_answers_does_not_replace_an_own_one() -> None:
    own = fitted("depolarized").selectors()
    kept = own | {0: replace(own[0], is_bundled=True)}
    active, made = (replace(calibration(), selectors=selectors) for selectors in (own, kept))
    assert len(vetoes(made, active, has_evidence=True)) == 1
    assert not vetoes(made, replace(active, origin="bundled"), has_evidence=True)
    assert not vetoes(active, made, has_evidence=True)
