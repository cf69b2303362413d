"""The value of more answers: figures by number of answers, compared with independent computations."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from service.calibration import fitting
from service.calibration.diagnostics import CrossValidated, EvaluationContext, Split, sizes
from service.calibration.fitting import Stream, fit_all
from service.calibration.labels import LabelledRows
from service.report.report import figures
from service.spectral.correctness_model import base_rate, fit_correctness, stratified_folds
from service.spectral.fit import fit_evidence
from service.spectral.reliability import projection_brier
from tests.support.decisions import by_first_answers, judged_material, judged_rows
from tests.support.first_answers import first_answers
from tests.support.reports import FEW
from tests.support.worlds import rows, split

DEV, TEST = rows(90, seed=1), rows(80, seed=2)


def answers(bench):
    return figures(bench)["answers"]


def context(dev, test):
    return EvaluationContext(dev, test, resamples=FEW)


@pytest.fixture(scope="module")
def bench():
    return context(split(DEV), split(TEST))


@pytest.fixture(scope="module")
def results_(bench):
    return answers(bench)


def row(experiment, m, score, name):
    [row_] = [r for r in experiment["rows"] if (r["num_samples"], r["score"], r["map"]) == (m, score, name)]
    return row_


def cut(part, m):
    """Return the split with only the first m answers."""
    return Split(LabelledRows(first_answers(part.material, m)))


@pytest.mark.parametrize("m", [3])
@pytest.mark.parametrize("name", ["raw", "temperature", "depolarized", "evidence"])
def test_maps_equal_those_of_a_study_with_this_number_of_answers(bench, results_, m, name):
    alone, own_row = context(cut(bench.dev, m), cut(bench.test, m)), row(results_, m, "lambda_max", name)
    served = alone.served[name]
    assert own_row["loss"]["value"] == pytest.approx(served.risks.mean(), abs=1e-9)
    assert own_row["brier"]["value"] == pytest.approx(
        projection_brier(served.lambda_max, alone.test.c1), abs=1e-9
    )
    assert own_row["auroc"]["value"] == pytest.approx(
        roc_auc_score(alone.test.rows.right, served.lambda_max.round(9))
    )


@pytest.mark.parametrize(("m", "name"), [(1, "evidence"), (3, "depolarized"), (8, "evidence")])
def test_probabilities_are_fitted_on_dev_and_judged_on_test(bench, results_, m, name):
    dev, test = cut(bench.dev, m), cut(bench.test, m)
    alone = context(dev, test)
    map_ = alone.fitted.fits[name].map
    reports = [LabelledRows(part.material).at(m).columns(map_) for part in (dev, test)]
    rng, right = bench.rng(Stream.ANSWERS), test.rows.right
    fold = stratified_folds(dev.rows.right, 5, rng)
    model = fit_correctness(reports[0], dev.rows.right, fold).model
    own_row = row(results_, m, "probability_correct", name)
    p = np.full(right.size, base_rate(dev.rows.right)) if model is None else model.predict(reports[1])
    assert own_row["loss"]["value"] == pytest.approx(log_loss(right, p), abs=1e-9)
    assert own_row["brier"]["value"] == pytest.approx(brier_score_loss(right, p), abs=1e-9)


def test_held_out_figures_equal_those_of_a_report_with_this_number():
    whole = split(DEV)
    answers_ = answers(CrossValidated(fit_all(whole.material, "auto", resamples=FEW), resamples=FEW))
    for m in (3, 8):
        material = first_answers(whole.material, m)
        alone = CrossValidated(fit_all(material, "auto", resamples=FEW), resamples=FEW)
        for name, served in alone.served.items():
            own_row = row(answers_, m, "lambda_max", name)
            assert own_row["loss"]["value"] == pytest.approx(served.risks.mean(), abs=1e-9)
            assert own_row["brier"]["value"] == pytest.approx(
                projection_brier(served.lambda_max, alone.test.c1), abs=1e-9
            )


def test_one_answer_is_scored_only_by_evidence(results_):
    assert {(r["score"], r["map"]) for r in results_["rows"] if r["num_samples"] == 1} == {
        ("lambda_max", "evidence"),
        ("probability_correct", "evidence"),
    }


def test_differences_are_to_all_answers_and_have_intervals(results_):
    for row_ in results_["rows"]:
        full = row(results_, 8, row_["score"], row_["map"])
        assert (row_["loss_gap"] is None) is (row_["num_samples"] == 8)
        if (gap := row_["loss_gap"]) is not None:
            assert gap["value"] == pytest.approx(row_["loss"]["value"] - full["loss"]["value"], abs=1e-12)
            assert gap["low"] <= gap["value"] <= gap["high"]
        for name in ("loss", "brier", "auroc", "half_error"):
            assert row_[name]["low"] <= row_[name]["value"] <= row_[name]["high"]


def fitted_on(columns, right):
    """Return P(correct) of a text without samples, fitted without a prior for its map."""
    return fit_correctness(columns, right, stratified_folds(right, 5, fitting.rng(0, Stream.ANSWERS)))


def test_text_judged_by_itself_is_compared_with_samples(bench, results_):
    """As if it were the only sample, under the map of the dev file's texts."""
    own_row = row(results_, 0, "probability_correct", "evidence")
    dev, test = (part.rows.at(0) for part in (bench.dev, bench.test))
    map_ = fit_evidence(dev.rows).map
    model = fitted_on(dev.columns(map_), dev.right).model
    p = np.full(len(test), base_rate(dev.right)) if model is None else model.predict(test.columns(map_))
    assert own_row["loss"]["value"] == pytest.approx(log_loss(test.right, p), abs=1e-9)
    assert own_row["loss_gap"] is not None and own_row["tokens"] == 0


@pytest.mark.parametrize("has_answers", [True, False])
def test_no_samples_are_recommended_only_if_all_judge_one_text(has_answers):
    """Without answers in the rows, the first sample judges itself, while others judge the dominant answer."""
    whole = Split(LabelledRows(judged_material(judged_rows(160) if has_answers else by_first_answers(160))))
    study = CrossValidated(fit_all(whole.material, "evidence", resamples=FEW), resamples=FEW)
    own_row = row(answers(study), 0, "probability_correct", "evidence")
    texts, columns = whole.rows.at(0), defaultdict(lambda: np.empty(160))
    for k in range(5):
        held = study.fold == k
        map_ = fit_evidence(texts.take(~held).rows).map
        for name, values in texts.take(held).columns(map_).items():
            columns[name][held] = values
    held_out = fitted_on(columns, texts.right).held_out
    assert texts.source == ("given" if has_answers else "first")
    assert own_row["loss"]["value"] == pytest.approx(log_loss(texts.right, held_out), abs=1e-9)
    assert own_row["auroc"]["value"] == pytest.approx(roc_auc_score(texts.right, held_out))
    assert (own_row["loss_gap"] is not None) is has_answers
    by_size = (study.first_answers(m) for m in (0, 2))
    named = {at_size.num_samples for at_size in by_size if at_size.same_text}
    assert named == ({0, 2} if has_answers else {2})


def test_compared_numbers_of_answers():
    assert sizes(20) == [1, 2, 3, 5, 8, 10, 20]
    assert sizes(6) == [1, 2, 3, 5, 6]
    assert sizes(2) == [1, 2]


def test_no_recommendation_without_both_kinds_of_verdicts(bench):
    """The risk is not used instead, because it falls with each answer and would always recommend all."""
    wrong = [{**item, "answer": "zzz"} for item in DEV]
    answers_ = answers(context(split(wrong), bench.test))
    assert answers_["recommended"] is None
    assert answers_["recommendation"].startswith(
        "No number of answers can be recommended: all 90 answers of the dev file are wrong."
    )
    assert "which takes right ones and wrong ones" in answers_["recommendation"]
    assert {r["score"] for r in answers_["rows"]} == {"lambda_max"}


def test_rows_with_fewer_answers_are_left_out(bench):
    from service.calibration.material import all_texts, assemble
    from tests.support.worlds import stored, vector

    made = [{**row_, "samples": row_["samples"][:4], "logprob": row_["logprob"][:4]} for row_ in TEST[:3]]
    kept = stored([*TEST[3:], *made])
    texts = all_texts(kept)
    vectors = np.stack([vector(text, 24) for text in texts])
    short = Split(LabelledRows(assemble(kept, 8, vectors, {text: i for i, text in enumerate(texts)}, 24)))
    assert len(short) == len(TEST) - 3
    without, whole = (answers(context(bench.dev, part)) for part in (short, split(TEST[3:])))
    assert without == whole


def test_tokens_are_of_the_first_answers(bench):
    def counted(num_tokens):
        material = bench.test.material
        texts = [
            replace(
                row_,
                draws=tuple(replace(draw, num_tokens=num_tokens(i, k)) for k, draw in enumerate(row_.draws)),
            )
            for i, row_ in enumerate(material.rows)
        ]
        answers_ = answers(context(bench.dev, Split(LabelledRows(replace(material, rows=texts)))))
        return {r["num_samples"]: r["tokens"] for r in answers_["rows"]}

    assert counted(lambda _, k: k + 1) == {0: 0, 1: 1, 2: 3, 3: 6, 5: 15, 8: 36}
    assert set(counted(lambda i, _: i or None).items()) == {(0, 0), *((m, None) for m in (1, 2, 3, 5, 8))}
