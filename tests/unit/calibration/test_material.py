"""Rows as vectors: each text with its own vector, and duplicate questions removed."""

from dataclasses import replace

import numpy as np
import pytest

from service.calibration.material import all_texts, assemble, usable_rows
from service.calibration.rows import DevRow
from service.errors import InvalidDevData
from service.llm.port import Draw, Message
from tests.support.decisions import judged_rows


def stored(line: int, samples: str, *references: str) -> DevRow:
    return replace(
        DevRow(line, None, references, prompt=f"p{line}"),
        draws=tuple(Draw(text) for text in samples),
        complete=True,
    )


def test_every_text_has_its_own_vector() -> None:
    rows = [stored(1, "abca", "r"), stored(2, "dbe", "a", "s"), stored(3, "cba", "s")]
    texts = all_texts(rows)
    vectors = np.random.default_rng(0).standard_normal((len(texts), 4)).astype(np.float32)
    place = {text: i for i, text in enumerate(texts)}
    made = assemble(rows, 4, vectors, place, 4)
    for row, answers in zip(rows, made.answers, strict=True):
        drawn = answers.vectors[answers.index]
        assert np.array_equal(drawn, [vectors[place[d.text]] for d in row.draws])
        assert np.array_equal(answers.references, [vectors[place[text]] for text in row.references])
    assert made.full.tolist() == [0]


def test_answers_contiguous_in_one_prompt_are_not_copied() -> None:
    rows = [stored(1, "abc", "r"), stored(2, "dbe", "s")]
    texts = all_texts(rows)
    vectors = np.eye(len(texts), dtype=np.float32)
    made = assemble(rows, 3, vectors, {text: i for i, text in enumerate(texts)}, len(texts))
    assert [np.shares_memory(answer.vectors, vectors) for answer in made.answers] == [True, False]


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


def test_duplicate_with_most_answers_counts_with_all_references() -> None:
    rows = [stored(line, "abcd", "r") for line in range(2, 32)]
    short, whole, judged = (stored(1, drawn, ref) for drawn, ref in (("ab", "x"), ("abcd", "y"), ("ab", "z")))
    judged = replace(judged, correct=True)
    [row] = [row_ for row_ in usable_rows([short, whole, judged, *rows], None, rng())[0] if row_.line == 1]
    assert (len(row.draws), row.references) == (4, ("x", "y"))


def test_duplicates_do_not_count_as_rows() -> None:
    with pytest.raises(InvalidDevData, match="9 of 90 rows"):
        usable_rows([stored(line % 9, "abcd", "r") for line in range(90)], None, rng())


def test_unicode_normalisation_of_duplicates() -> None:
    first, second, square = (
        DevRow(1, None, ("a",), prompt=text)
        for text in ("Which caf\u00e9?", "which  cafe\u0301?", "Which caf\u00b2?")
    )
    assert first.wording == second.wording != square.wording
