import pytest

from lab.command import read_evaluation_file
from service.errors import InvalidDevData
from tests.support.devdata import good, jsonl

NONE = [None, None]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [([1, 7], [1, 7]), ([1, 0], NONE), ([1, True], NONE), (None, NONE)],
    ids=str,
)
def test_only_valid_numbers_are_accepted(tmp_path, sent, kept):
    path = tmp_path / "dev.jsonl"
    path.write_bytes(jsonl([row | {"samples": ["a", "b"], "tokens": sent} for row in good(30)]))
    result = read_evaluation_file(path)
    assert [draw.num_tokens for draw in result.rows[0].draws] == kept
    assert result.supplied


def test_rows_with_and_without_answers_cannot_be_mixed(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_bytes(jsonl([*good(30), good(1, 30)[0] | {"samples": ["a", "b"]}]))
    with pytest.raises(InvalidDevData, match="all must or none"):
        read_evaluation_file(path)
