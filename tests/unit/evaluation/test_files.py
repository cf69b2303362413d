import io

import pytest

from service.errors import InvalidDevData
from service.evaluation.command import read_evaluation_file
from tests.support.devdata import ONE, good, jsonl

NONE = [None, None]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [([1, 7], [1, 7]), ([1, 0], NONE), ([1, True], NONE), (None, NONE)],
    ids=str,
)
def test_only_numbers_that_can_be_are_taken(sent, kept):
    row = good(1)[0] | {"samples": ["a", "b"], "tokens": sent}
    found = read_evaluation_file(io.BytesIO(jsonl([row])), limits=ONE)
    assert [one.num_tokens for one in found.rows[0].draws] == kept
    assert found.supplied


def test_rows_with_and_without_answers_do_not_mix():
    sent = [*good(3), good(1, 3)[0] | {"samples": ["a", "b"]}]
    with pytest.raises(InvalidDevData, match="all must or none"):
        read_evaluation_file(io.BytesIO(jsonl(sent)), limits=ONE)
