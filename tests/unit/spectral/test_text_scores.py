import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.spectral.text_scores import correct_by_rouge_l, rouge_l, words


def longest_common(a, b):
    """Return the length of the longest common subsequence by the textbook recurrence."""
    row = [0] * (len(b) + 1)
    for x in a:
        previous = row[:]
        for j, y in enumerate(b):
            row[j + 1] = previous[j] + 1 if x == y else max(previous[j + 1], row[j])
    return row[-1]


sentences = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat"]), max_size=9)


@given(sentences, sentences)
def test_rouge_l_equals_the_definition(a, b):
    common = longest_common(a, b)
    expected = 2 * common / (len(a) + len(b)) if common else 0.0
    assert rouge_l(" ".join(a), [" ".join(b)]) == pytest.approx(expected)


@given(st.text(), st.text())
def test_rouge_l_is_symmetric_bounded_and_one_for_equal_texts(a, b):
    value = rouge_l(a, [b])
    assert 0 <= value <= 1
    assert value == rouge_l(b, [a])
    assert rouge_l(a, [a]) == (1.0 if words(a) else 0.0)


def test_order_of_words_matters():
    assert rouge_l("a b c", ["c b a"]) == pytest.approx(1 / 3)


def test_best_reference_counts():
    assert rouge_l("Sir Winston Churchill", ["Attlee", "Winston Churchill"]) == pytest.approx(0.8)
    assert rouge_l("anything", []) == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("STRASSE", "straße"),
        ("Café", "cafe\u0301"),
        ("Ελλάδα!", "ελλάδα"),
        ("Париж", "париж."),
        ("ﬁne", "fine"),
        ("１９４５", "1945"),
        ("東京", "「東京」"),
    ],
)
def test_words_of_any_script_and_form(a, b):
    assert rouge_l(a, [b]) == 1


def test_the_threshold_is_strict():
    answer, reference = "a b c", "a x y z v w r"  # 2 * 1 / (3 + 7) = 0.2
    assert rouge_l(answer, [reference]) == pytest.approx(0.2)
    assert not correct_by_rouge_l(answer, [reference], threshold=0.2)
    assert correct_by_rouge_l(answer, [reference], threshold=0.19)
    assert not correct_by_rouge_l("", ["Winston Churchill"])
