import numpy as np
import pytest
from hypothesis import given, settings

from service.spectral import dev_set as batch
from service.spectral.dev_set import Answers, dev_set, overlaps, solve, weighted
from service.spectral.spectrum import spectrum
from tests.support.alignment import reference_alignment
from tests.unit.spectral.worlds import answers, seeds


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_stacked_spectra_equal_single_spectra(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prompts = [answers(rng, 7, references=int(rng.integers(1, 4))) for _ in range(6)]
    dev = dev_set(iter(prompts), 16)
    for row, prompt in enumerate(prompts):
        single = spectrum(prompt.vectors, np.bincount(prompt.index))
        c, outside = reference_alignment(single, prompt.vectors, prompt.references)
        assert dev.rank[row] == single.rank
        assert dev.eigenvalues[row, : single.rank] == pytest.approx(single.eigenvalues, abs=1e-12)
        assert dev.alignment[row, : single.rank] == pytest.approx(c, abs=1e-7)
        assert dev.outside[row] == pytest.approx(outside, abs=1e-7)
        assert (dev.eigenvalues[row, single.rank :] == 0).all()


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_subset_equals_the_spectrum_of_its_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers_ = answers(rng, 9)
    draws = rng.permutation(9)[:4]
    solution = solve([weighted(overlaps(answers_), draws)], 16)
    repeated = spectrum(answers_.vectors[answers_.index[draws]])
    assert solution.rank[0] == repeated.rank
    assert solution.eigenvalues[0] == pytest.approx(repeated.eigenvalues, abs=1e-12)


def test_multiplication_method_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_ = answers(np.random.default_rng(0), 9, references=2)
    small = overlaps(answers_)
    monkeypatch.setattr(batch, "SYMMETRIC_FROM", 0)
    assert overlaps(answers_).cosines == pytest.approx(small.cosines, abs=1e-14)
    assert overlaps(answers_).targets == pytest.approx(small.targets, abs=1e-14)


def test_stack_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    prompts = [answers(rng, 5) for _ in range(12)]
    whole = dev_set(prompts, 16)
    monkeypatch.setattr(batch, "STACK_ENTRIES", 30)
    split = dev_set(prompts, 16)
    assert split.eigenvalues == pytest.approx(whole.eigenvalues, abs=1e-15)
    assert split.alignment == pytest.approx(whole.alignment, abs=1e-15)


@pytest.mark.parametrize(
    ("vectors", "index", "references", "message"),
    [
        (np.eye(2), [0, 2], np.eye(2), "index"),
        (np.eye(2), [0, -1], np.eye(2), "index"),
        (np.eye(2), [], np.eye(2), "at least one"),
        (np.eye(2), [0], np.empty((0, 2)), "at least one"),
        (np.zeros((1, 2)), [0], np.eye(2), "zero row"),
        (np.eye(2), [0], np.zeros((1, 2)), "zero row"),
        (np.array([[np.nan, 1.0]]), [0], np.eye(2), "not finite"),
        (np.array([[np.inf, 1.0]]), [0], np.eye(2), "not finite"),
        (np.eye(2), [0], np.ones((1, 1)), "one dimension"),
        (np.eye(2), [0], np.ones((2, 3)), "one dimension"),
        (np.eye(2), [0], np.ones(2), "one dimension"),
        (np.ones(2), [0], np.eye(2), "one dimension"),
    ],
)
def test_unusable_answers_are_refused(
    vectors: np.ndarray, index: list[int], references: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        overlaps(Answers(vectors, np.array(index, dtype=np.int64), references))


@pytest.mark.parametrize("index", [[0.5], [np.inf], ["0"], [True]])
def test_index_must_be_integers(index: list[object]) -> None:
    with pytest.raises(ValueError, match="index"):
        overlaps(Answers(np.eye(2), np.array(index), np.eye(2)))


def test_no_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        dev_set([], 16)
