"""Claims of composed answers are ranked nearly as well as short answers (method, section 13; MiniLM).

Sixty answers of three claims with five samples: a small version of `benchmarks.claims`. The figures are this
code's own, on the recorded answers.
"""

from itertools import chain
from pathlib import Path

import pytest

from benchmarks.claims import Table, World, compose
from benchmarks.recorded_evidence import WEIGHTS, embedded
from service.calibration.labels import Judged
from service.claims.kernel import compared_texts
from service.claims.segments import claims
from service.scoring.claims import matcher_of, outcomes_of
from service.spectral.dev_set import born_probabilities, served_lambda_max
from service.spectral.reliability import auroc
from service.spectral.spectrum import TemperatureMap, born_probability

pytestmark = [pytest.mark.shared, pytest.mark.weights]
MINILM, ANSWERS = "all-MiniLM-L6-v2", 60
RAW = TemperatureMap(1.0)


@pytest.fixture(scope="module")
def world(shared_data: Path) -> World:
    assert shared_data.is_dir()
    if not (WEIGHTS / MINILM).exists():
        pytest.skip(f"the weights {MINILM} are not here")
    return World(compose(5, seed=4151)[:ANSWERS], Table(MINILM))


def figures(rows: Judged) -> tuple[float, float, float]:
    """AUROC of lambda_max and of p(y), and the mean of lambda_max."""
    top, p = served_lambda_max(RAW, rows.rows), born_probabilities(RAW, rows.texts)
    return auroc(top, rows.right), auroc(p, rows.right), float(top.mean())


def test_figures_of_the_recorded_answers(world: World) -> None:
    assert (world.right.size, world.right.sum()) == (180, 14)
    assert figures(world.short()) == pytest.approx((0.698, 0.732, 0.660), abs=0.005)
    assert figures(world.matched()) == pytest.approx((0.702, 0.700, 0.557), abs=0.005)
    assert auroc(world.best_cosines(), world.right) == pytest.approx(0.680, abs=0.005)


def test_sentences_match_only_their_own_question(world: World) -> None:
    assert not any(match_.support.silent for match_ in world.matches)


def test_wrong_year_differs_from_paraphrases_of_the_right_one() -> None:
    question = "Who was Marie Curie?"
    drawn = [
        "Marie Curie was a Polish-French physicist, born in 1867 in Warsaw. She received the Nobel Prize in "
        "Physics in 1903 and the Nobel Prize in Chemistry in 1911. She died on 4 July 1934 in Sancellemoz.",
        "Marie Curie studied radioactivity. She was born in Warsaw in 1867. In 1903 she shared the Nobel "
        "Prize in Physics. In 1911 she won the Nobel Prize in Chemistry. She died in 1934.",
        "Born in Warsaw in 1867, Marie Curie became a famous physicist. She won two Nobel Prizes: Physics in "
        "1903 and Chemistry in 1911. She died in Passy in 1934 of aplastic anemia.",
    ]
    right = [
        "She was born in Warsaw in 1867.",
        "She won the Nobel Prize in Physics in 1903.",
        "She died in 1934.",
    ]
    wrong = "She won a second Nobel Prize in 1921, in Chemistry."
    judged = claims(" ".join([*right, wrong]), question=question)
    claims_ = [claims(answer, question=question) for answer in drawn]
    sentences = [item.text for item in chain(judged, *claims_)]
    vectors = embedded([*sentences, *compared_texts(sentences, question)], MINILM)
    if not vectors:
        pytest.skip(f"the weights {MINILM} are not here")
    matcher = matcher_of(judged, claims_, vectors, question)
    assert matcher is not None
    results = [*outcomes_of(matcher.matches(), 384)]
    p = [
        born_probability(result.spectrum, RAW.serve(result.spectrum.eigenvalues, 384), result.cosines)
        for result in results
    ]
    *true, false = [born.probability for born in p]
    assert min(true) > 2 * false
    assert [result.support.agree for result in results] == [3, 3, 3, 0]
