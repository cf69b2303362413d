"""Rows as vectors: each text with its own vector, and duplicate questions removed."""

from dataclasses import replace

import numpy as np
import pytest

from service.calibration.material import usable_rows
from service.calibration.rows import DevRow
from service.errors import InvalidDevData
from service.llm.prompt import Message
from service.llm.samples import Draw
from tests.support.decisions import judged_rows


def stored(line: int, samples: str, *references: str) -> DevRow:
    return replace(
        DevRow(line, None, references, prompt=f"p{line}"),
        draws=tuple(Draw(text) for text in samples),
        complete=True,
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_random_duplicate_counts() -> None:
    """Each question has a right answer and two wrong ones: a third of random choices is right."""
    rows = [
        replace(judged_row, prompt=judged_row.prompt, correct=copy == 0)
        for judged_row in judged_rows(160)
        for copy in range(3)
    ]
    result, _, copies = usable_rows(rows, None, rng())
    assert (len(result), copies) == (160, 320)
    assert 35 < sum(bool(item.correct) for item in result) < 72


def test_duplicates_ignore_case_and_white_space_in_each_turn() -> None:
    talks = [
        (Message("user", "Where?"), Message("assistant", "Here."), Message("user", "And then?")),
        (Message("user", " where? "), Message("assistant", "HERE."), Message("user", "And\n then?")),
        (Message("user", "Where?"), Message("assistant", "There."), Message("user", "And then?")),
    ]
    rows = [stored(line, "abcd", "r") for line in range(1, 31)]
    rows += [replace(rows[0], line=31, prompt=" P1\t")]
    rows += [replace(rows[0], line=32 + i, prompt=None, messages=talk) for i, talk in enumerate(talks)]
    # Rows without a question are no duplicates.
    rows += [replace(rows[0], line=40 + i, prompt=None) for i in range(2)]
    result, _, copies = usable_rows(rows, None, rng())
    assert (len(result), copies) == (34, 2)


def test_duplicates_do_not_count_as_rows() -> None:
    with pytest.raises(InvalidDevData, match="9 of 90 rows"):
        usable_rows([stored(line % 9, "abcd", "r") for line in range(90)], None, rng())
