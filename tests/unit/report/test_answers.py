"""The value of more answers: figures by number of answers, compared with independent computations."""

from collections import defaultdict

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from lab.splits import Split
from lab.two_files import TwoFiles
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import fit_all, folds
from service.calibration.labels import LabelledRows
from service.report.report import answers_part
from service.spectral.correctness_model import base_rate, fit_correctness
from service.spectral.fit import fit_evidence
from tests.support.decisions import by_first_answers, judged_material, judged_rows
from tests.support.reports import FEW
from tests.support.worlds import rows, split

DEV, TEST = rows(90, seed=1), rows(80, seed=2)


def answers(bench):
    return answers_part(bench)


def context(dev, test):
    return TwoFiles(dev, test, resamples=FEW)


@pytest.fixture(scope="module")
def bench():
    return context(split(DEV), split(TEST))


@pytest.fixture(scope="module")
def results_(bench):
    return answers(bench)


def row(experiment, m, name):
    [row_] = [r for r in experiment["rows"] if (r["num_samples"], r["map"]) == (m, name)]
    return row_


def test_text_judged_by_itself_is_compared_with_samples(bench, results_):
    """As if it were the only sample, under the map of the dev file's texts."""
    own_row = row(results_, 0, "evidence")
    dev, test = (part.rows.at(0) for part in (bench.dev, bench.test))
    map_ = fit_evidence(dev.rows).map
    model = fit_correctness(dev.columns(map_), dev.right, folds(bench.dev.rows, 0)).model
    p = np.full(len(test), base_rate(dev.right)) if model is None else model.predict(test.columns(map_))
    assert own_row["loss"]["value"] == pytest.approx(log_loss(test.right, p), abs=1e-9)
    assert own_row["loss_gap"] is not None and own_row["tokens"] == 0


@pytest.mark.parametrize("has_answers", [True, False])
def test_no_samples_are_recommended_only_if_all_judge_one_text(has_answers):
    """Without answers in the rows, the first sample judges itself, while others judge the dominant answer."""
    whole = LabelledRows(judged_material(judged_rows(160) if has_answers else by_first_answers(160)))
    study = CrossValidated(fit_all(whole, "evidence"), resamples=FEW)
    own_row = row(answers(study), 0, "evidence")
    fold, texts, columns = study.fitted.fold, whole.at(0), defaultdict(lambda: np.empty(160))
    for k in range(5):
        held = fold == k
        map_ = fit_evidence(texts.take(~held).rows).map
        for name, values in texts.take(held).columns(map_).items():
            columns[name][held] = values
    held_out = fit_correctness(columns, texts.right, fold).held_out
    assert texts.source == ("mixed" if has_answers else "first")  # most `answer`s are drawn, too
    assert own_row["loss"]["value"] == pytest.approx(log_loss(texts.right, held_out), abs=1e-9)
    assert own_row["auroc"]["value"] == pytest.approx(roc_auc_score(texts.right, held_out))
    assert (own_row["loss_gap"] is not None) is has_answers
    by_size = (study.first_answers(m) for m in (0, 2))
    named = {at_size.num_samples for at_size in by_size if at_size.same_text}
    assert named == ({0, 2} if has_answers else {2})


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
