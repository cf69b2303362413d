import io

import pytest

from service.errors import InvalidDevData
from service.evaluation.files import Recorded, read_evaluation_file
from tests.support.devdata import ONE, good, jsonl


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"logprob": [0, -1.5]}, Recorded(logprob=(0.0, -1.5))),  # a sure answer has log 1
        ({"logprobs": [0.01, -1.5]}, Recorded(logprob=(0.0, -1.5))),  # rounded
        ({"tokens": [1, 7]}, Recorded(tokens=(1.0, 7.0))),
        ({"tokens": [1, 0]}, Recorded()),
        ({"tokens": [1, True]}, Recorded()),
    ],
    ids=str,
)
def test_only_numbers_that_can_be_are_taken(sent, kept):
    row = good(1)[0] | {"samples": ["a", "b"]} | sent
    found = read_evaluation_file(io.BytesIO(jsonl([row])), limits=ONE)
    assert found.recorded == {1: kept}
    assert found.supplied


def test_rows_with_and_without_answers_do_not_mix():
    sent = [*good(3), good(1, 3)[0] | {"samples": ["a", "b"]}]
    with pytest.raises(InvalidDevData, match="all must or none"):
        read_evaluation_file(io.BytesIO(jsonl(sent)), limits=ONE)
