"""P(correct) and thresholds fitted with a calibration. tests/golden checks their promises."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from service.calibration.calibration import Method
from service.calibration.default import packaged
from service.calibration.fitting import (
    FOLDS,
    WHOLE,
    Fitted,
    Stream,
    fit_all,
    fit_selectors,
    rng,
)
from service.calibration.labels import LabelledRows
from service.calibration.rows import DevRow
from service.embedding.port import PAPER
from service.llm.port import Draw
from service.report.report import correctness_part, format_promise, targets
from service.spectral.correctness_model import (
    AGREEMENT,
    base_rate,
    log_loss,
    stratified_folds,
)
from service.spectral.evidence import EvidenceMap
from service.spectral.selective import Promise
from service.spectral.spectrum import DepolarizedMap
from tests.support.decisions import TARGET, by_first_answers, judged_material, judged_rows
from tests.support.fakes import FakeEmbedder
from tests.support.reports import FEW
from tests.support.trial import NONSENSE, check, deciding, judged

fit = partial(fit_all, resamples=FEW)

# The map of P(correct): with temperature only, equal answers have lambda_max 1.
METHODS = {"temperature": DepolarizedMap, "depolarized": DepolarizedMap, "evidence": EvidenceMap}


@cache
def fitted(method: str = "evidence", count: int = 160) -> Fitted:
    return fit(judged_material(judged_rows(count)), method)


@pytest.mark.parametrize("method", METHODS)
def test_every_number_of_answers_has_a_selector_of_the_chosen_map(method: str) -> None:
    result = fitted(method).selectors()
    assert sorted(result) == ([0, 1, 2, 3, 4] if method == "evidence" else [0, 2, 3, 4])
    # A text without samples is judged by its log-probability, for any map of the answers.
    assert isinstance(result[0].map, EvidenceMap)
    assert all(isinstance(fit_.map, METHODS[method]) for m, fit_ in result.items() if m)
    assert all(item.model.features == (AGREEMENT,) for m, item in result.items() if m)
    assert {resamples.counts.num_rows for resamples in result.values()} == {160}


def test_refusals_never_count_as_let_through() -> None:
    """Scores never let them through, so a promise that counts them would be about other texts."""
    stored = judged_rows(160)
    refusals = (Draw("I don't know.", total_logprob=-0.5), Draw("N/A", total_logprob=-1.0))
    for i in range(5):
        stored[i] = replace(stored[i], draws=refusals * 2)
    stored[5] = replace(stored[5], answer="I don't know.")
    fit_ = fit(judged_material(stored), "evidence")
    for m, at in fit_.decided.items():
        assert at.selector is not None
        hidden = at.selector.counts.never_answered
        seen = fit_.rows.at(m).refused if m else ~fit_.rows.at(m).supported
        assert np.flatnonzero(seen).tolist() == ([*range(6)] if m else [5])
        assert hidden >= seen.sum() and at.selector.counts.num_rows == 160


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
    held = stratified_folds(right, FOLDS, rng(0, Stream.SELECTORS)) == 1
    others = [
        replace(row, references=("else",)) if changed else row
        for row, changed in zip(rows, held, strict=True)
    ]
    after = fit(judged_material(others), "evidence")
    assert before.parameters != after.parameters
    for m, decision in before.decided.items():
        other = after.decided[m]
        assert decision.fit.held_out is not None
        assert other.fit.held_out is not None
        assert np.array_equal(decision.fit.held_out[held], other.fit.held_out[held])
        assert not np.array_equal(decision.fit.held_out[~held], other.fit.held_out[~held])


@pytest.mark.parametrize("method", METHODS)
def test_progress_reaches_the_total_for_each_map(method: str) -> None:
    reports: list[tuple[int, int]] = []
    fit(judged_material(judged_rows(60)), method, progress=lambda *at: reports.append(at))
    assert {total for _, total in reports} == {WHOLE}
    done = [at for at, _ in reports]
    assert done == sorted(done)
    assert done[0] < 400
    assert done[-1] == WHOLE


def test_reasons_for_a_missing_model() -> None:
    rows = judged_rows(80)
    right = [replace(row, correct=True) for row in rows]
    one_kind = fit(judged_material(right), "depolarized")
    assert {item.fit.why_none for item in one_kind.decided.values()} == {"one_kind"}
    assert one_kind.selectors() == {}
    chance = fit(judged_material(by_chance(300)), "depolarized")
    assert "no_better_than_base_rate" in {item.fit.why_none for item in chance.decided.values()}


@pytest.mark.parametrize("method", ["depolarized", "evidence"])
def test_ten_rows_suffice_with_maps_shrunk_to_the_default(method: Method) -> None:
    """On held-out rows."""
    new, default = LabelledRows(judged_material(judged_rows(400, seed=77))).at(4), packaged(PAPER)
    gains = []
    for seed in range(20):
        selectors_ = fit_selectors(
            LabelledRows(judged_material(judged_rows(10, seed=seed))),
            method,
            rng=np.random.default_rng(0),
            priors=default.prior,
        )
        selectors = {m: item.selector for m, item in selectors_.items() if item.selector is not None}
        for selector_ in selectors.values():
            assert selector_.counts.num_rows == 10
            assert selector_.model.features == (AGREEMENT,)
        if (selector := selectors.get(4)) is not None:
            base = np.full(len(new), base_rate(selectors_[4].right))
            ours = selector.model.predict(new.columns(selector.map))
            gains.append(log_loss(base, new.right) - log_loss(ours, new.right))
    assert len(gains) > 3
    assert np.mean(gains) > 0


def by_chance(count: int) -> list[DevRow]:
    rng = np.random.default_rng(2)
    return [
        replace(judged_row, correct=bool(rng.random() < 0.5))
        for judged_row in judged_rows(count, logprobs=False)
    ]


@pytest.mark.parametrize(("num_answers", "judged"), [(160, "given"), (80, "mixed"), (0, "dominant")])
def test_selector_has_the_source_of_the_judged_texts(num_answers: int, judged: str) -> None:
    rows = [
        judged_row if i < num_answers else replace(judged_row, answer=None)
        for i, judged_row in enumerate(judged_rows(160))
    ]
    result = fit(judged_material(rows), "depolarized").selectors()
    assert {item.judged for m, item in result.items() if m} == {judged}


@pytest.mark.parametrize(("rows", "judged"), [(judged_rows(160), "given"), (by_first_answers(), "first")])
def test_texts_with_own_logprobs_need_no_samples(rows: list[DevRow], judged: str) -> None:
    selector = fit(judged_material(rows), "depolarized").selectors()[0]
    assert isinstance(selector.map, EvidenceMap)
    assert (selector.judged, selector.counts.num_rows) == (judged, 160)
    assert selector.model.weights[0] > 0


def test_fit_without_samples_does_not_change_other_fits() -> None:
    rows = [replace(judged_row, answer_logprob=None) for judged_row in judged_rows(160)]
    rows[:30] = [replace(row, answer="undrawn") for row in rows[:30]]
    without, all_told = (
        fit(judged_material(rows_), "depolarized")
        for rows_ in (rows, [replace(row, answer_logprob=-1.0) for row in rows])
    )
    assert sorted(without.decided) == [2, 3, 4] and sorted(all_told.decided) == [0, 2, 3, 4]
    assert without.selectors() == {m: selector for m, selector in all_told.selectors().items() if m}


def test_first_sample_is_judged_by_references_or_a_verdict() -> None:
    row = DevRow(1, None, ("Paris",), prompt="Where?", correct=False)
    draws = tuple(Draw(text, total_logprob=-1.0) for text in ("Paris", "Nice", "Nice"))
    first = replace(row, draws=draws, complete=True)
    dominant = replace(first, draws=draws[1:] + draws[:1])  # `correct` is about "Nice"
    none = replace(first, correct=None)
    judged = LabelledRows(judged_material([first, dominant, none])).at(0)
    assert judged.right.tolist() == [True, False, True]


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


def test_report_has_a_row_per_number_and_details_for_the_full_number() -> None:
    part = correctness_part(fitted(), 4, 0, TARGET)
    assert [row["num_samples"] for row in part["by_num_samples"]] == [0, 1, 2, 3, 4]
    for row in part["by_num_samples"]:
        assert row["why_none"] is None
        assert row["right"] + row["wrong"] == 160
        assert row["log_loss"] is not None
        assert row["base_log_loss"] is not None
        assert row["log_loss"] < row["base_log_loss"]
        assert row["auroc"]["low"] is not None
    assert sum(item["count"] for item in part["diagram"]) == 160
    assert [promise["target_error"] for promise in part["promises"]] == [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    last = part["risk_coverage"][-1]
    counts = fitted().selectors()[4].counts
    assert last["coverage"] == 1 - counts.never_answered / 160 < 1
    assert last["error"] < last["bound"]
    for made in part["promises"]:
        if made["threshold"] is not None:
            [at] = [
                decision for decision in part["risk_coverage"] if decision["threshold"] == made["threshold"]
            ]
            assert at["coverage"] == made["coverage"]
            assert at["bound"] <= made["target_error"]


def test_base_rate_error_is_a_target_if_above_the_others() -> None:
    assert targets(0.42)[-1] == 0.5
    assert targets(0.8612)[-2:] == [0.5, 0.86]
    assert targets(0.999)[-1] == 0.5


def test_selectors_exist_for_the_fitted_numbers_of_answers() -> None:
    rows = judged_rows(60, num_samples=80, logprobs=False)
    sizes = sorted(fit(judged_material(rows), "depolarized").decided)
    assert sizes[0] == 2
    assert sizes[-1] == 80
    assert len(sizes) < 79


@cache
def worlds() -> tuple[FakeEmbedder, list[DevRow]]:
    """Return own answers with calibrated confidence, unsupported by the few samples in some rows."""
    return FakeEmbedder(64, empty_answers="outcome"), judged_rows(360, seed=4)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_nonsense_is_never_let_through_and_has_no_p_correct(m: int) -> None:
    embedder, rows = worlds()
    calibration = deciding(rows[:300], embedder)
    trial = judged(rows[300:], m, calibration, embedder)
    assert 20 < check(trial) < 60
    assert sum(text in scores for scores in trial for text in NONSENSE) == 120


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (Promise(0.2, 0.9, 0.7, 30, 2, 0.3, 0.2), "at most 20 % of the answers let through are wrong"),
        (Promise(0.1, 0.9, None, 0, 0, 0.0, 0.1231), "the lowest that can be is 12.4 %"),
        (Promise(0.1, 0.9, None, 0, 0, 0.0, None), "these rows are too few"),
    ],
)
def test_a_promise_in_words(made: Promise, sentence: str) -> None:
    words = format_promise(made, 20, of_claims=False)
    assert sentence in words
    assert "with 20 answers and 90 % confidence" in words.lower()
    assert "claims" in format_promise(replace(made, threshold=0.7), 20, of_claims=True)
