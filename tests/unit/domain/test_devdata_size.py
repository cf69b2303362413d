"""How many texts an upload makes, and the bound on them."""

import pytest

from service.calibration.files import TextCount, UploadLimits, check_size
from service.calibration.rows import DevRow
from service.errors import InvalidDevData


def counted(rows: int, samples: int = 0, references: int = 1) -> TextCount:
    """Rows that carry so many samples; 0: none."""
    found = TextCount()
    for line in range(1, rows + 1):
        carried = tuple(map(str, range(samples))) or None
        found.add(DevRow(line, None, ("yes",) * references, prompt="Q?", samples=carried))
    return found


@pytest.mark.parametrize(
    ("file", "asked", "texts"),
    [
        (counted(3), None, 3 * (20 + 1)),  # drawn: the serving number
        (counted(3), 7, 3 * (7 + 1)),  # drawn: as asked
        (counted(3, samples=5), None, 3 * (5 + 1)),
        (counted(3, samples=5), 4, 3 * (4 + 1)),  # cut to what is asked
        (counted(3, samples=5), 9, 3 * (5 + 1)),  # never more than there are
        (counted(3, samples=5, references=64), None, 3 * (5 + 64)),
    ],
)
def test_answers_and_references_are_counted(file: TextCount, asked: int | None, texts: int) -> None:
    assert file.total(asked, 20) == texts


def test_an_answer_to_be_judged_is_a_text_too() -> None:
    found = counted(3, samples=5)
    found.add(DevRow(4, None, ("yes",), prompt="Q?", samples=("a", "b"), answer="c"))
    assert found.total(None, 20) == 3 * (5 + 1) + 2 + 1 + 1


@pytest.mark.parametrize("file", [counted(2000, samples=100), counted(10_000), counted(10_000, references=5)])
def test_what_a_calibration_commonly_holds_is_let_in(file: TextCount) -> None:
    check_size([file], None, UploadLimits())


def test_the_files_of_one_job_count_together_and_the_limit_is_named() -> None:
    limits = UploadLimits(max_texts=100, num_samples=9)
    check_size([counted(5), counted(5)], None, limits)
    with pytest.raises(InvalidDevData) as caught:
        check_size([counted(5), counted(6)], None, limits)
    assert "11 rows make up to 110 answers and references, more than the 100 " in caught.value.detail
    check_size([counted(5), counted(6)], 8, limits)
