"""The judged text of a row: embedded, judged and converted to features like in a score."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from service.calibration.calibration import answer_features
from service.calibration.labels import LabelledRows
from service.calibration.material import DevSet, all_texts, assemble
from service.calibration.rows import DevRow
from service.claims.kernel import kernel_of, read_texts
from service.embedding.port import PAPER
from service.llm.samples import Draw, distinct, with_candidate
from service.scoring.choice import ServedCalibration
from service.scoring.judge import judge
from service.scoring.observation import observe, observe_alone
from service.spectral.correctness_model import AGREEMENT, sigmoid
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap, born_probability, serve
from tests.support.calibrations import calibration
from tests.support.decisions import selector
from tests.support.first_answers import first_answers

D, M = 12, 6
TEXTS = ("Paris", "Lyon", "the city of Nice", "Nancy", "Lille")


def rows(count: int = 40, *, logprobs: bool = True) -> list[DevRow]:
    """Return rows of all kinds: with an own answer, drawn or not, with a verdict, and with neither."""
    rng = np.random.default_rng(5)
    made = []
    for i in range(count):
        drawn = rng.choice(len(TEXTS), M, p=rng.dirichlet(np.ones(len(TEXTS))))
        totals = -rng.gamma(2.0, 1.0, M) if logprobs else [None] * M
        draws = tuple(Draw(TEXTS[k], total_logprob=t) for k, t in zip(drawn, totals, strict=True))
        answer = (None, " Metz ", TEXTS[drawn[0]], "Metz")[i % 4]
        row = DevRow(i + 1, None, ("Paris",), prompt=f"q{i}", answer=answer, correct=(None, True)[i % 3 == 1])
        made.append(replace(row, draws=draws[: M - (i % 7 == 6)], complete=True))
    return made


def vectors_of(texts: Sequence[str]) -> np.ndarray:
    rng = np.random.default_rng(1)
    vectors = {text: rng.standard_normal(D) + 0.7 for text in (*TEXTS, "Metz", "else", "I don't know.")}
    made = np.stack([vectors[text] / np.linalg.norm(vectors[text]) for text in texts])
    return made.astype(np.float32)


def material(stored: Sequence[DevRow]) -> DevSet:
    texts = all_texts(stored)
    return assemble(stored, M, vectors_of(texts), {text: i for i, text in enumerate(texts)}, D)


def scored(row: DevRow, m: int, map_: EvidenceMap | DepolarizedMap | TemperatureMap) -> dict[str, float]:
    """Return the data of a score by the first m answers: a spectrum, the map's eigenvalues and p(y)."""
    texts, index = distinct([draw.text for draw in row.draws[:m]])
    answer = None if row.answer is None else row.answer.strip()
    known = with_candidate(texts, answer)
    kernel = kernel_of(read_texts(known, kernel=PAPER), vectors_of(known))
    seen = observe(row.draws[:m], index, texts, answer, kernel, D, None)
    served_by = map_
    if isinstance(map_, EvidenceMap):
        assert seen.evidence is not None
        served_by = map_.at(seen.evidence.missing_mass)
    assert not isinstance(served_by, EvidenceMap)
    served = serve(seen.spectrum, served_by.temperature, served_by.depolarization)
    p = born_probability(seen.spectrum, served, seen.cosines(seen.judged)).probability
    columns = answer_features(served.lambda_max, p)
    return {name: float(np.asarray(value)) for name, value in columns.items()}


@pytest.mark.parametrize("m", [1, 2, 3, M])
@pytest.mark.parametrize(
    "map_", [DepolarizedMap(0.8, 0.4), TemperatureMap(1.7), EvidenceMap(0.9, -0.2, 0.5)], ids=repr
)
def test_training_features_equal_score_features(
    map_: EvidenceMap | DepolarizedMap | TemperatureMap, m: int
) -> None:
    full = first_answers(material(rows()), M)
    made = LabelledRows(full).at(m).columns(map_)
    assert set(made) == {AGREEMENT}
    for i, row in enumerate(full.rows):
        expected = scored(row, m, map_)
        assert {name: float(np.asarray(made[name])[i]) for name in made} == pytest.approx(
            expected, rel=1e-12, abs=1e-12
        )


def with_own_logprobs() -> list[DevRow]:
    rng = np.random.default_rng(8)
    return [row if row.answer is None else replace(row, answer_logprob=-rng.gamma(2.0)) for row in rows()]


@pytest.mark.parametrize("map_", [EvidenceMap(0.9, -0.2, 0.5), EvidenceMap(1.0, 0.7, 1.3)], ids=repr)
def test_text_judged_by_itself_has_the_features_of_a_score(
    map_: EvidenceMap,
) -> None:
    """The map depends on the log-probability of the text, not on the samples."""
    made = material(with_own_logprobs())
    full = LabelledRows(made)
    texts = full.at(0)
    assert full.serves_none
    assert (texts.source, len(texts)) == ("mixed", len(full))
    columns = texts.columns(map_)
    assert set(columns) == {AGREEMENT}
    for i, position in enumerate(made.full):
        row = made.rows[position]
        total = row.draws[0].total_logprob if row.answer is None else row.answer_logprob
        applied = ServedCalibration(replace(calibration(), selectors={0: selector(map_)}), None)
        assert total is not None
        judgement = judge(observe_alone(row.answer or "x", total, D, None), applied, None)
        expected = float(sigmoid(np.asarray(columns[AGREEMENT])[i]))
        assert judgement.probability_correct == pytest.approx(expected, rel=1e-12)


def test_first_answers_keep_logprobs_if_a_later_one_has_none() -> None:
    stored = rows()
    last = replace(stored[0].draws[-1], total_logprob=None)
    stored[0] = replace(stored[0], draws=(*stored[0].draws[:-1], last))
    whole = LabelledRows(material(stored))
    assert whole.at(M).rows.missing_mass is None
    with pytest.raises(ValueError, match="log-probability"):
        whole.at(M).columns(EvidenceMap(1.0, 0.0, 1.0))
    assert whole.at(M - 1).rows.missing_mass is not None
    assert set(LabelledRows(material(rows(logprobs=False))).at(M).columns(TemperatureMap(1.0))) == {AGREEMENT}


@pytest.mark.parametrize(
    ("answers", "source"),
    [
        (["Metz", "Metz", " drawn "], "given"),
        (["Metz", "drawn", "drawn"], "mixed"),  # as in ten verdicts on the service's own answers
        (["Metz", "Metz", None], "mixed"),
        ([None, None, None], "dominant"),
    ],
)
def test_answers_that_are_mostly_drawn_too_are_of_both_sources(
    answers: list[str | None], source: str
) -> None:
    made = []
    for row, answer in zip(rows(3), answers, strict=True):
        text = row.draws[0].text if answer is not None and "drawn" in answer else answer
        made.append(replace(row, answer=text, correct=True, draws=row.draws))
    assert LabelledRows(material(made)).at(M).source == source
